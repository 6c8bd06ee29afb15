/** Rows about images and archives, in a network of their own: the registry that is pulled from has a public address. */
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { ArchiveEffort } from "./archive-rows.ts";
import type { ImportEffort } from "./import-rows.ts";
import type { Row } from "./samples.ts";

const script = (name: string) => fileURLToPath(new URL(`../../scripts/${name}`, import.meta.url));
const PROGRAM = fileURLToPath(new URL("./storage-program.ts", import.meta.url));

export interface StorageEffort {
  image: ImportEffort;
  archive: ArchiveEffort;
}

export interface StorageWork extends StorageEffort {
  /** Folder of skopeo and umoci. */
  tools: string;
}

/** One size finds faults of the bench, the other is the one that is promised. */
export const QUICK_STORAGE: StorageEffort = {
  image: { mib: 64, rounds: 1 },
  archive: { mib: 16, rounds: 2 },
};
export const FULL_STORAGE: StorageEffort = {
  image: { mib: 1_024, rounds: 3 },
  archive: { mib: 256, rounds: 5 },
};

export function storageRows(effort: StorageEffort): Row[] {
  // Here, since a network of its own has no way out.
  fetched("fetch-registry");
  const work: StorageWork = { ...effort, tools: fetched("fetch-image-tools") };
  const folder = mkdtempSync(join(tmpdir(), "viv-bench-"));
  const out = join(folder, "rows.json");
  const command = [process.execPath, "--no-warnings", PROGRAM, out, JSON.stringify(work)];
  try {
    const { status } = spawnSync(script("in-own-network"), command, { stdio: ["ignore", 2, 2] });
    if (status !== 0) throw new Error(`the rows of group storage ended with ${status}`);
    return JSON.parse(readFileSync(out, "utf8"));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** The path of the things that a script has put into the cache, as it prints it. */
function fetched(name: string): string {
  return execFileSync(script(name), { encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] }).trim();
}

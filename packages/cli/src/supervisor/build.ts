/** Reads what a checkout or a copy is: its version, its commit and the schema that its control brings a database to. */
import { readdir, readFile } from "node:fs/promises";
import path from "node:path";
import { runHostCommand } from "@vivarium/kit/host-command";
import { ROOT } from "./repository.ts";

/** File in the folder of a copy (`update/copies.ts`) with its version: a copy has no git. */
export const COPY_FACTS = "copy.json";

export interface Build {
  /**
   * As `0.1.0+7a764caf`, with `.modified` where files differ from the commit; without a commit where git is missing. A copy
   * of a checkout with changes also has a hash of its content.
   */
  version: string;
  /** Number of the newest migration. */
  schema: number;
}

export async function readBuild(root = ROOT): Promise<Build> {
  const [version, schema] = await Promise.all([readVersion(root), newestMigration(root)]);
  return { version, schema };
}

async function readVersion(root: string): Promise<string> {
  const read = async (name: string) => JSON.parse(await readFile(path.join(root, name), "utf8"));
  const copy: { version: string } | undefined = await read(COPY_FACTS).catch(() => undefined);
  if (copy) return copy.version;
  const manifest: { version: string } = await read("package.json");
  const commit = await readCommit(root);
  return commit === "" ? manifest.version : `${manifest.version}+${commit}`;
}

/** Arguments with which git works on a folder. Its owner's settings could name programs, which root would run. */
export function gitAt(root: string): string[] {
  return ["-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-C", root];
}

async function readCommit(root: string): Promise<string> {
  const described = await runHostCommand(
    "git",
    [...gitAt(root), "describe", "--always", "--exclude=*", "--dirty=.modified"],
    { timeoutMs: 5_000 },
  );
  return described.code === 0 ? described.stdout.trim() : "";
}

async function newestMigration(root: string): Promise<number> {
  const names = await readdir(path.join(root, "packages/control/src/db/migrations"));
  return Math.max(0, ...names.map((name) => Number(/^(\d{4})_.*\.sql$/.exec(name)?.[1] ?? 0)));
}

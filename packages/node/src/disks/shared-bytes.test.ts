import { execFileSync } from "node:child_process";
import { mkdtemp, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { KIB } from "@vivarium/kit/sizes";
import { afterEach, beforeEach, expect, it } from "vitest";
import { sharedBytes } from "./shared-bytes.ts";

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(path.join(tmpdir(), "shared-"));
});
afterEach(() => rm(dir, { recursive: true, force: true }));

/** A small file system that can share blocks, as the pool can. */
async function inPool(use: (pool: string) => Promise<void>): Promise<void> {
  const [image, mount] = [path.join(dir, "image"), path.join(dir, "mount")];
  execFileSync("truncate", ["-s", "320M", image]);
  execFileSync("mkfs.xfs", ["-q", "-m", "reflink=1", image]);
  execFileSync("mkdir", [mount]);
  execFileSync("mount", ["-o", "loop", image, mount]);
  try {
    await use(mount);
  } finally {
    execFileSync("umount", [mount]);
  }
}

it("returns what a clone shares with its source, less what was written to either since", async () => {
  await inPool(async (pool) => {
    const [source, clone] = [path.join(pool, "source"), path.join(pool, "clone")];
    await writeFile(source, Buffer.alloc(512 * KIB, 1));
    expect(await sharedBytes(source)).toBe(0);
    execFileSync("cp", ["--reflink=always", source, clone]);
    expect(await sharedBytes(clone)).toBe(512 * KIB);
    // Not on the disk yet.
    execFileSync("dd", ["if=/dev/urandom", `of=${clone}`, "bs=64k", "seek=2", "count=1", "conv=notrunc"], {
      stdio: "ignore",
    });
    expect(await sharedBytes(clone)).toBe(448 * KIB);
    // Blocks of a file that is removed come back later, those of one that is emptied at once.
    await truncate(source);
    expect(await sharedBytes(clone)).toBe(0);
  });
});

it("is 0 for a missing file", async () => {
  expect(await sharedBytes(path.join(dir, "missing"))).toBe(0);
});

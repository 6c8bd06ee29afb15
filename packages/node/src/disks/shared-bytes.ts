/** Counts a file's bytes in blocks that it shares with other files (FIEMAP, Linux Documentation/filesystems/fiemap). */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";

const BLOCK_BYTES = 512;
/** Time limit of filefrag: the guest is frozen meanwhile, and its root can cut the disk into millions of extents. */
const LIMIT_MS = 3_000;
/** A line of `filefrag -v`: `   0:        0..    4095:   33190416..  33194511:   4096:             last,shared,eof` */
const EXTENT = /^\s*\d+:\s*\d+\.\.\s*\d+:\s*\d+\.\.\s*\d+:\s*(\d+):(.*)$/;

/** The file's shared bytes, or 0 when filefrag fails. */
export async function sharedBytes(file: string): Promise<number> {
  // A host without free descriptors or memory cannot even start filefrag.
  return await countSharedBytes(file).catch(() => 0);
}

async function countSharedBytes(file: string): Promise<number> {
  // -s: blocks that were written but not yet allocated look shared until the file is synced.
  const args = ["-s", "-v", `-b${BLOCK_BYTES}`, file];
  const child = spawn("filefrag", args, { stdio: ["ignore", "pipe", "ignore"], timeout: LIMIT_MS });
  const closed = once(child, "close").then(
    ([code]) => code === 0,
    () => false,
  );
  let blocks = 0;
  for await (const line of createInterface(child.stdout)) {
    const [, length, flags = ""] = EXTENT.exec(line) ?? [];
    if (/\bshared\b/.test(flags)) blocks += Number(length);
  }
  return (await closed) ? blocks * BLOCK_BYTES : 0;
}

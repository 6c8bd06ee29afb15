/** The parts of a file that hold data, and which of them it shares with other files (FIEMAP, Linux Documentation/filesystems/fiemap). */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";

const BLOCK_BYTES = 512;
/** A line of `filefrag -v`: `   0:        0..    4095:   33190416..  33194511:   4096:             last,shared,eof` */
const EXTENT = /^\s*\d+:\s*(\d+)\.\.\s*\d+:\s*\d+\.\.\s*\d+:\s*(\d+):(.*)$/;

export interface Extent {
  start: number;
  bytes: number;
  isShared: boolean;
}

interface ExtentOptions {
  timeoutMs?: number;
  /** Blocks that were written but not yet allocated look shared until the file is synced. */
  sync?: boolean;
}

/** Undefined when filefrag fails, or takes longer than it may: a guest's root can cut a disk into millions of extents. */
export async function extentsOf(
  file: string,
  { timeoutMs = 60_000, sync = false }: ExtentOptions = {},
): Promise<Extent[] | undefined> {
  // A host without free descriptors or memory cannot even start filefrag.
  return await readExtents(file, { timeoutMs, sync }).catch(() => undefined);
}

async function readExtents(
  file: string,
  { timeoutMs, sync }: Required<ExtentOptions>,
): Promise<Extent[] | undefined> {
  const args = [...(sync ? ["-s"] : []), "-v", `-b${BLOCK_BYTES}`, file];
  const child = spawn("filefrag", args, { stdio: ["ignore", "pipe", "ignore"], timeout: timeoutMs });
  const closed = once(child, "close").then(
    ([code]) => code === 0,
    () => false,
  );
  const extents: Extent[] = [];
  for await (const line of createInterface(child.stdout)) {
    const [, first, length, flags = ""] = EXTENT.exec(line) ?? [];
    if (first === undefined) continue;
    const [start, bytes] = [Number(first) * BLOCK_BYTES, Number(length) * BLOCK_BYTES];
    extents.push({ start, bytes, isShared: /\bshared\b/.test(flags) });
  }
  return (await closed) ? extents : undefined;
}

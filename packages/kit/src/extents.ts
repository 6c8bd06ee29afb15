/** The parts of a file that hold data, and which of them it shares with other files (FIEMAP, Linux Documentation/filesystems/fiemap). */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";

const BLOCK_BYTES = 512;
/** A line of `filefrag -v`: `   0:        0..    4095:   33190416..  33194511:   4096:             last,shared,eof` */
const EXTENT = /^\s*\d+:\s*(\d+)\.\.\s*\d+:\s*(\d+)\.\.\s*\d+:\s*(\d+):(.*)$/;
/** Flags of extents whose place on the device does not say which bytes they have. */
const NO_PLACE = /\b(unknown_loc|delalloc|encoded|encrypted|not_aligned|inline|tail_packed|unwritten)\b/;

export interface Extent {
  start: number;
  bytes: number;
  isShared: boolean;
  /** Its place on the file system's device; undefined if the bytes there may not be those of the file. */
  place: number | undefined;
}

interface ExtentOptions {
  timeoutMs?: number;
  /** Blocks that were written but not yet allocated look shared until the file is synced. */
  sync?: boolean;
}

/** Undefined when filefrag fails, or takes longer than it may: a file may be cut into millions of extents. */
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
    const [, first, place, length, flags = ""] = EXTENT.exec(line) ?? [];
    if (first === undefined) continue;
    extents.push({
      start: Number(first) * BLOCK_BYTES,
      bytes: Number(length) * BLOCK_BYTES,
      isShared: /\bshared\b/.test(flags),
      place: NO_PLACE.test(flags) ? undefined : Number(place) * BLOCK_BYTES,
    });
  }
  return (await closed) ? extents : undefined;
}

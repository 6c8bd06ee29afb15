/** Writes the changed memory pages of a stopped machine into the snapshot's memory file, a clone of the parent's. */
import { closeSync, openSync, readSync, writeSync } from "node:fs";
import { setImmediate } from "node:timers/promises";
import { crc32 } from "node:zlib";
import { KIB } from "@vivarium/kit/sizes";
import type { ChangedRun } from "./changed-pages.ts";
import { PAGE_BYTES, type PageSums } from "./page-sums.ts";

const CHUNK_BYTES = 256 * KIB;
/** How long the work may occupy its thread before other jobs get a turn. They wait, because a guest is stopped meanwhile. */
export const TURN_MS = 10;

export interface ChangedMemory {
  pid: number;
  runs: Iterable<ChangedRun>;
  parent: string;
}

/**
 * Writes the pages that differ from the parent, whose memory file is `parent`, and returns their size in bytes.
 * `sums` starts as the parent's table.
 */
export async function writeChangedPages(
  source: ChangedMemory,
  target: { file: string; sums: PageSums },
  now = () => performance.now(),
): Promise<number> {
  const memory = openSync(`/proc/${source.pid}/mem`, "r");
  const parent = openSync(source.parent, "r");
  const file = openSync(target.file, "r+");
  const buffer = Buffer.allocUnsafe(CHUNK_BYTES);
  let written = 0;
  let turnAt = now() + TURN_MS;
  try {
    for (const run of source.runs) {
      for (let done = 0; done < run.bytes; done += CHUNK_BYTES) {
        const chunk = buffer.subarray(0, Math.min(CHUNK_BYTES, run.bytes - done));
        readFully(memory, chunk, run.address + done);
        written += writeChanged({ file, parent }, chunk, run.fileOffset + done, target.sums);
        if (now() < turnAt) continue;
        await setImmediate();
        turnAt = now() + TURN_MS;
      }
    }
    return written;
  } finally {
    for (const fd of [memory, parent, file]) closeSync(fd);
  }
}

/** Writes the pages of a chunk that differ from the parent's; equal sums alone do not prove that a page does not. */
function writeChanged(
  { file, parent }: { file: number; parent: number },
  chunk: Buffer,
  offset: number,
  sums: PageSums,
): number {
  const old = Buffer.allocUnsafe(PAGE_BYTES);
  let written = 0;
  let from = 0;
  const flush = (to: number) => {
    if (to > from) writeFully(file, chunk.subarray(from, to), offset + from);
    written += to - from;
  };
  for (let at = 0; at < chunk.length; at += PAGE_BYTES) {
    const content = chunk.subarray(at, at + PAGE_BYTES);
    const page = (offset + at) / PAGE_BYTES;
    const sum = crc32(content);
    if (sum === sums.sums[page] && isSame(parent, content, offset + at, old)) {
      flush(at);
      from = at + PAGE_BYTES;
    } else {
      sums.set(page, sum);
    }
  }
  flush(chunk.length);
  return written;
}

/** Compares a page with the parent's file, whose pages are in the page cache. Those of a new clone are only on disk. */
function isSame(parent: number, content: Buffer, offset: number, old: Buffer): boolean {
  readFully(parent, old, offset);
  return old.equals(content);
}

export function readFully(fd: number, buffer: Buffer, position: number): void {
  for (let done = 0; done < buffer.length; ) {
    const got = readSync(fd, buffer, done, buffer.length - done, position + done);
    if (got === 0) throw new Error("memory ends early");
    done += got;
  }
}

export function writeFully(fd: number, buffer: Buffer, position: number): void {
  for (let done = 0; done < buffer.length; )
    done += writeSync(fd, buffer, done, buffer.length - done, position + done);
}

/**
 * Reads a file window by window: the blocks that differ from those of a base at the same place. Where there is no base, all of
 * its bytes are zeros. Holes, and what both files have in the same blocks of the device, are not read.
 */
import { constants } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import path from "node:path";
import { extentsOf } from "@vivarium/kit/extents";
import { byWindow, inBlocks, type Span, sameIn, spanOf, unionOf, without } from "./spans.ts";

export const BLOCK_BYTES = 4096;

/** A file that is open, and what was known of it then. */
export interface OpenFile {
  file: string;
  handle: FileHandle;
  bytes: number;
  mode: number;
  inode: string;
  device: bigint;
  modified: bigint;
}

/** The blocks of a window that differ, in their order, and a bit for each block of the window. */
export interface Difference {
  window: number;
  mask: Buffer;
  content: Buffer;
}

/** Opens a regular file for reading. A link is not followed. */
export async function openRegular(dir: string, name: string): Promise<OpenFile> {
  const file = path.join(dir, name);
  const handle = await open(file, constants.O_RDONLY | constants.O_NOFOLLOW);
  try {
    const found = await handle.stat({ bigint: true });
    if (!found.isFile()) throw new Error(`${name} is not a regular file`);
    return {
      file,
      handle,
      bytes: Number(found.size),
      mode: Number(found.mode) & 0o777,
      inode: `${found.dev}:${found.ino}`,
      device: found.dev,
      modified: found.mtimeNs,
    };
  } catch (error) {
    await handle.close();
    throw error;
  }
}

/** Throws if the file has changed since it was opened. */
export async function requireUnchanged({ file, handle, bytes, modified }: OpenFile): Promise<void> {
  const found = await handle.stat({ bigint: true });
  if (Number(found.size) !== bytes || found.mtimeNs !== modified)
    throw new Error(`${path.basename(file)} has changed while it was read`);
}

/** The ranges that may differ from the base. */
export async function rangesToRead(own: OpenFile, base: OpenFile | undefined): Promise<Span[]> {
  const whole = [{ start: 0, end: own.bytes }];
  const [mine, theirs] = await Promise.all([
    extentsOf(own.file, { sync: true }),
    base && extentsOf(base.file, { sync: true }),
  ]);
  if (!mine || (base && !theirs)) return unionOf(whole);
  const holding = unionOf([...mine, ...(theirs ?? [])].map(spanOf));
  const same = base?.device === own.device ? sameIn(mine, theirs ?? []) : [];
  return inBlocks(without(holding, same), BLOCK_BYTES, own.bytes);
}

export const windowsToRead = (ranges: readonly Span[], windowBytes: number) => byWindow(ranges, windowBytes);

/** Undefined if no block differs. */
export async function readWindow(
  { own, base, windowBytes }: { own: OpenFile; base: OpenFile | undefined; windowBytes: number },
  { window, spans }: { window: number; spans: readonly Span[] },
): Promise<Difference | undefined> {
  const mask = Buffer.alloc(windowBytes / BLOCK_BYTES / 8);
  const blocks: Buffer[] = [];
  const first = window * windowBytes;
  for (const { start, end } of spans) {
    const mine = await readRange(own, start, end);
    const theirs = base ? await readRange(base, start, end) : Buffer.alloc(end - start);
    for (let at = 0; at < mine.length; at += BLOCK_BYTES) {
      const block = mine.subarray(at, at + BLOCK_BYTES);
      if (block.equals(theirs.subarray(at, at + block.length))) continue;
      const bit = (start + at - first) / BLOCK_BYTES;
      mask[bit >> 3] = (mask[bit >> 3] ?? 0) | (1 << (bit & 7));
      blocks.push(block);
    }
  }
  return blocks.length > 0 ? { window, mask, content: Buffer.concat(blocks) } : undefined;
}

/** Bytes past the end of the file are zeros. */
async function readRange({ handle }: OpenFile, start: number, end: number): Promise<Buffer> {
  const buffer = Buffer.alloc(end - start);
  for (let done = 0; done < buffer.length; ) {
    const { bytesRead } = await handle.read(buffer, done, buffer.length - done, start + done);
    if (bytesRead === 0) break;
    done += bytesRead;
  }
  return buffer;
}

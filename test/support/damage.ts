/** Damages one file of a published snapshot, as a failing disk would. */
import { execFileSync } from "node:child_process";
import { closeSync, openSync, readFileSync, readSync, renameSync, statSync, writeSync } from "node:fs";
import { rm, truncate } from "node:fs/promises";
import { join } from "node:path";
import { crc32 } from "node:zlib";

const PAGE_BYTES = 4096;
const EMPTY_PAGE_SUM = crc32(Buffer.alloc(PAGE_BYTES));

/** Gives a snapshot's file blocks of its own, since copies share them, without changing its timestamps. */
export function unshare(file: string): void {
  execFileSync("cp", ["--reflink=always", "--preserve=all", file, `${file}.own`]);
  renameSync(`${file}.own`, file);
}

export async function truncateFile(dir: string, name: string): Promise<void> {
  unshare(join(dir, name));
  await truncate(join(dir, name), statSync(join(dir, name)).size - 1);
}

export async function removeFile(dir: string, name: string): Promise<void> {
  await rm(join(dir, name));
}

/** Flips one bit. `isSilent`: timestamps stay as they were, as after a disk error. */
export async function flipBit(dir: string, name: string, offset: number, isSilent: boolean): Promise<void> {
  const file = join(dir, name);
  unshare(file);
  execFileSync("cp", ["--attributes-only", "--preserve=timestamps", file, `${file}.age`]);
  const fd = openSync(file, "r+");
  const byte = Buffer.alloc(1);
  readSync(fd, byte, 0, 1, offset);
  byte.writeUInt8(byte.readUInt8() ^ 1);
  writeSync(fd, byte, 0, 1, offset);
  closeSync(fd);
  if (isSilent) execFileSync("touch", ["--reference", `${file}.age`, file]);
  await rm(`${file}.age`);
}

export type PageKind = "own" | "inherited" | "empty";

/** Offset of the first page of this kind, found in the snapshot's table: page sums, then a bitmap of own pages. */
export function pageOffset(dir: string, kind: PageKind): number {
  const table = readFileSync(join(dir, "mem.sums"));
  const pages = statSync(join(dir, "mem")).size / PAGE_BYTES;
  for (let page = 0; page < pages; page++) {
    const isOwn = ((table[pages * 4 + (page >> 3)] ?? 0) & (1 << (page & 7))) !== 0;
    const isEmpty = table.readUInt32LE(page * 4) === EMPTY_PAGE_SUM;
    const found = isOwn ? "own" : isEmpty ? "empty" : "inherited";
    if (found === kind) return page * PAGE_BYTES;
  }
  throw new Error(`the snapshot in ${dir} has no ${kind} page`);
}

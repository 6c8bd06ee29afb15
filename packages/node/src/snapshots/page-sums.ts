/**
 * A checksum per page of a memory file, and which pages are the snapshot's own. Memory is cloned from its parent and
 * only changed pages are written, so only their sums change: a capture never reads the rest (security.md C8).
 *
 * File: a little-endian uint32 CRC per page, then a bitmap with one bit per page.
 */
import { type FileHandle, open, readFile } from "node:fs/promises";
import { crc32 } from "node:zlib";

export const PAGE_BYTES = 4096;
const READ_BYTES = 1024 * 1024;
const READ_PAGES = READ_BYTES / PAGE_BYTES;
const ZERO_PAGE = Buffer.alloc(PAGE_BYTES);
export const ZERO_SUM = crc32(ZERO_PAGE);

export class PageSums {
  readonly sums: Uint32Array;
  readonly #own: Uint8Array;

  constructor(sums: Uint32Array, own = new Uint8Array(Math.ceil(sums.length / 8))) {
    this.sums = sums;
    this.#own = own;
  }

  static async read(file: string): Promise<PageSums> {
    const bytes = await readFile(file);
    const pages = Math.floor((bytes.length * 8) / 33);
    if (bytes.length !== pages * 4 + Math.ceil(pages / 8)) throw new Error(`${file} has a wrong length`);
    const whole = new Uint8Array(bytes);
    return new PageSums(new Uint32Array(whole.buffer, 0, pages), whole.subarray(pages * 4));
  }

  toBytes(): Buffer {
    const sums = Buffer.from(this.sums.buffer, this.sums.byteOffset, this.sums.byteLength);
    return Buffer.concat([sums, this.#own]);
  }

  isOwn(page: number): boolean {
    return ((this.#own[page >> 3] ?? 0) & (1 << (page & 7))) !== 0;
  }

  set(page: number, sum: number): void {
    this.sums[page] = sum;
    this.#own[page >> 3] = (this.#own[page >> 3] ?? 0) | (1 << (page & 7));
  }

  /** A child's table: nothing is its own yet when the parent is a baseline, which is verified by itself. */
  child(ofBaseline: boolean): PageSums {
    return new PageSums(this.sums.slice(), ofBaseline ? undefined : this.#own.slice());
  }
}

/** Reads a whole memory file; every page that is not empty is its own. */
export async function sumMemory(file: string, bytes: number): Promise<PageSums> {
  const table = new PageSums(new Uint32Array(bytes / PAGE_BYTES).fill(ZERO_SUM));
  await eachPage(
    file,
    runsOf(table.sums.length, () => true),
    (page, content) => {
      const sum = crc32(content);
      if (sum !== ZERO_SUM) table.set(page, sum);
    },
  );
  return table;
}

/** Throws when a page is not what the table says: of all pages, or of the snapshot's own alone. */
export async function verifyMemory(file: string, table: PageSums, scope: "all" | "own"): Promise<void> {
  const isWanted = scope === "all" ? () => true : (page: number) => table.isOwn(page);
  await eachPage(file, runsOf(table.sums.length, isWanted), (page, content) => {
    if (crc32(content) !== table.sums[page]) throw new Error(`page ${page} of the memory is damaged`);
  });
}

interface PageRun {
  first: number;
  count: number;
}

function* runsOf(pages: number, isWanted: (page: number) => boolean): Generator<PageRun> {
  for (let first = 0; first < pages; first++) {
    if (!isWanted(first)) continue;
    let end = first + 1;
    while (end < pages && end - first < READ_PAGES && isWanted(end)) end++;
    yield { first, count: end - first };
    first = end - 1;
  }
}

async function eachPage(
  file: string,
  runs: Iterable<PageRun>,
  look: (page: number, content: Buffer) => void,
): Promise<void> {
  const handle = await open(file, "r");
  const buffer = Buffer.allocUnsafe(READ_BYTES);
  try {
    for (const { first, count } of runs) {
      await readExactly(handle, buffer, count * PAGE_BYTES, first * PAGE_BYTES);
      for (let i = 0; i < count; i++) look(first + i, buffer.subarray(i * PAGE_BYTES, (i + 1) * PAGE_BYTES));
    }
  } finally {
    await handle.close();
  }
}

async function readExactly(handle: FileHandle, buffer: Buffer, length: number, position: number) {
  for (let done = 0; done < length; ) {
    const { bytesRead } = await handle.read(buffer, done, length - done, position + done);
    if (bytesRead === 0) throw new Error("the memory file is cut short");
    done += bytesRead;
  }
}

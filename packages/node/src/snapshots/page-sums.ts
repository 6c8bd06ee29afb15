/**
 * The table with a checksum per page of a memory file, and which pages are the snapshot's own. Memory is cloned from
 * its parent and only changed pages are written, so only their sums change: a capture never reads the other pages.
 *
 * File: a little-endian uint32 CRC per page, then a bitmap with one bit per page.
 */
import { type FileHandle, open, readFile } from "node:fs/promises";
import { crc32 } from "node:zlib";
import { MIB } from "@vivarium/kit/sizes";

export const PAGE_BYTES = 4096;
const READ_BYTES = MIB;
const READ_PAGES = READ_BYTES / PAGE_BYTES;
/** Most unwanted pages between wanted ones that are read along, which is faster than a separate read. */
const GAP_PAGES = 16;
/** Number of concurrent reads, so that the next is in flight while the pages of one are checked. */
const READS_AT_ONCE = 3;
const ZERO_PAGE = Buffer.alloc(PAGE_BYTES);
export const ZERO_SUM = crc32(ZERO_PAGE);

/** The error for a snapshot whose files do not match its manifest or sums, or that does not fit this host. */
export class UnusableSnapshot extends Error {}

export class PageSums {
  readonly sums: Uint32Array;
  readonly #own: Uint8Array;

  constructor(sums: Uint32Array, own = new Uint8Array(Math.ceil(sums.length / 8))) {
    this.sums = sums;
    this.#own = own;
  }

  static async read(file: string): Promise<PageSums> {
    return PageSums.parse(await readFile(file), file);
  }

  /** Parses a file's bytes. */
  static parse(bytes: Uint8Array, name = "a table of sums"): PageSums {
    const pages = Math.floor((bytes.length * 8) / 33);
    if (bytes.length !== pages * 4 + Math.ceil(pages / 8))
      throw new UnusableSnapshot(`${name} has a wrong length`);
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

  /** A child's table. If the parent is a baseline, which is verified separately, no page is the child's own yet. */
  child(ofBaseline: boolean): PageSums {
    return new PageSums(this.sums.slice(), ofBaseline ? undefined : this.#own.slice());
  }
}

/** The table of a memory file that is all zeros: no page is the snapshot's own. */
export function sumsOfZeros(bytes: number): PageSums {
  return new PageSums(new Uint32Array(bytes / PAGE_BYTES).fill(ZERO_SUM));
}

/** Sums a whole memory file. Every page that is not all zeros is the snapshot's own. */
export async function sumMemory(file: string, bytes: number): Promise<PageSums> {
  const table = sumsOfZeros(bytes);
  await eachPage(file, { count: table.sums.length, isWanted: () => true }, (page, content) => {
    const sum = crc32(content);
    if (sum !== ZERO_SUM) table.set(page, sum);
  });
  return table;
}

/** Throws UnusableSnapshot if a page does not match its sum. `scope`: all pages, or only the snapshot's own. */
export async function verifyMemory(file: string, table: PageSums, scope: "all" | "own"): Promise<void> {
  const isWanted = scope === "all" ? () => true : (page: number) => table.isOwn(page);
  await verifyPages(file, table, { isWanted });
}

/** As `verifyMemory`, for the wanted pages. */
export async function verifyPages(
  file: string,
  table: PageSums,
  wanted: Pick<Pages, "isWanted" | "onRead">,
): Promise<void> {
  await eachPage(file, { count: table.sums.length, ...wanted }, (page, content) => {
    if (crc32(content) !== table.sums[page])
      throw new UnusableSnapshot(`page ${page} of the memory is damaged`);
  });
}

interface Pages {
  count: number;
  isWanted: (page: number) => boolean;
  /** Called with the bytes of each read, before the next one. */
  onRead?: (bytes: number) => Promise<void>;
}

/** Calls `look` for every wanted page, in no order. */
async function eachPage(
  file: string,
  pages: Pages,
  look: (page: number, content: Buffer) => void,
): Promise<void> {
  const spans = spansOf(pages);
  const handle = await open(file, "r");
  const readSpans = async () => {
    const buffer = Buffer.allocUnsafe(READ_BYTES);
    for (const { first, end } of spans) {
      await readExactly(handle, buffer, (end - first) * PAGE_BYTES, first * PAGE_BYTES);
      for (let page = first; page < end; page++) {
        const at = (page - first) * PAGE_BYTES;
        if (pages.isWanted(page)) look(page, buffer.subarray(at, at + PAGE_BYTES));
      }
      await pages.onRead?.((end - first) * PAGE_BYTES);
    }
  };
  try {
    await Promise.all(Array.from({ length: READS_AT_ONCE }, readSpans));
  } finally {
    await handle.close();
  }
}

/** The reads that cover all wanted pages, each from page `first` up to, but not including, page `end`. */
function* spansOf({ count, isWanted }: Pages): Generator<{ first: number; end: number }> {
  let span: { first: number; end: number } | undefined;
  for (let page = 0; page < count; page++) {
    if (!isWanted(page)) continue;
    if (span && page - span.end <= GAP_PAGES && page - span.first < READ_PAGES) {
      span.end = page + 1;
      continue;
    }
    if (span) yield span;
    span = { first: page, end: page + 1 };
  }
  if (span) yield span;
}

async function readExactly(handle: FileHandle, buffer: Buffer, length: number, position: number) {
  for (let done = 0; done < length; ) {
    const { bytesRead } = await handle.read(buffer, done, length - done, position + done);
    if (bytesRead === 0) throw new UnusableSnapshot("the memory file is cut short");
    done += bytesRead;
  }
}

/**
 * Saves the memory pages of a stopped machine in a sealed file, and writes them into the process of another one. The pages are
 * those that differ from the memory file below, which both processes map.
 *
 * A segment's content: count of runs, then of each run its first page and its number of pages (uint32 big-endian), then the
 * pages of all runs.
 */
import { closeSync, openSync } from "node:fs";
import { setImmediate } from "node:timers/promises";
import type { Mapping } from "./changed-pages.ts";
import { type ChangedMemory, readFully, TURN_MS, writeFully } from "./memory.ts";
import { PAGE_BYTES, UnusableSnapshot } from "./page-sums.ts";
import { readSealed, SealedWriter, type Sealing } from "./sealed-file.ts";

/** Pages of a segment, and of a read of the process: 256 KiB. */
const SEGMENT_PAGES = 64;
const CHUNK_BYTES = SEGMENT_PAGES * PAGE_BYTES;
const RUN_BYTES = 8;

/** Seals the pages that differ from `source.parent`. Returns their size, and that of the file. */
export async function writeSealedPages(
  source: ChangedMemory,
  { file: name, ...sealing }: Sealing & { file: string },
  now = () => performance.now(),
): Promise<{ written: number; fileBytes: number }> {
  const memory = openSync(`/proc/${source.pid}/mem`, "r");
  const parent = openSync(source.parent, "r");
  const file = openSync(name, "wx", 0o600);
  const pages = new PageWriter(new SealedWriter(file, sealing));
  const content = Buffer.alloc(CHUNK_BYTES);
  const below = Buffer.alloc(CHUNK_BYTES);
  const pause = pacer(now);
  try {
    for (const run of source.runs) {
      for (let done = 0; done < run.bytes; done += CHUNK_BYTES) {
        const bytes = Math.min(CHUNK_BYTES, run.bytes - done);
        readFully(memory, content.subarray(0, bytes), run.address + done);
        readFully(parent, below.subarray(0, bytes), run.fileOffset + done);
        for (let at = 0; at < bytes; at += PAGE_BYTES) {
          const end = at + PAGE_BYTES;
          if (content.compare(below, at, end, at, end) === 0) continue;
          pages.add((run.fileOffset + done + at) / PAGE_BYTES, content.subarray(at, end));
        }
        await pause();
      }
    }
    return { written: pages.bytes, fileBytes: pages.end() };
  } finally {
    for (const fd of [memory, parent, file]) closeSync(fd);
  }
}

/** Gathers pages into segments. */
class PageWriter {
  readonly #file: SealedWriter;
  readonly #content = Buffer.alloc(CHUNK_BYTES);
  #runs: { first: number; count: number }[] = [];
  #pages = 0;
  bytes = 0;

  constructor(file: SealedWriter) {
    this.#file = file;
  }

  add(page: number, content: Buffer): void {
    const last = this.#runs.at(-1);
    if (last && last.first + last.count === page) last.count++;
    else this.#runs.push({ first: page, count: 1 });
    content.copy(this.#content, this.#pages++ * PAGE_BYTES);
    this.bytes += PAGE_BYTES;
    if (this.#pages === SEGMENT_PAGES) this.#flush();
  }

  end(): number {
    if (this.#pages > 0) this.#flush();
    return this.#file.end();
  }

  #flush(): void {
    const table = Buffer.alloc(4 + RUN_BYTES * this.#runs.length);
    table.writeUInt32BE(this.#runs.length);
    for (const [i, { first, count }] of this.#runs.entries()) {
      table.writeUInt32BE(first, 4 + RUN_BYTES * i);
      table.writeUInt32BE(count, 8 + RUN_BYTES * i);
    }
    this.#file.write(table, this.#content.subarray(0, this.#pages * PAGE_BYTES));
    this.#runs = [];
    this.#pages = 0;
  }
}

/**
 * Writes the sealed pages into a process that maps the memory file below privately and whose guest has not run: they become pages
 * of the process alone, and no file has them. Throws UnusableSnapshot for a damaged file; the process is useless then.
 */
export async function loadSealedPages(
  { file: name, ...sealing }: Sealing & { file: string },
  { pid, mappings }: { pid: number; mappings: Mapping[] },
  now = () => performance.now(),
): Promise<void> {
  const file = openSync(name, "r");
  const memory = openSync(`/proc/${pid}/mem`, "r+");
  const pause = pacer(now);
  try {
    for (const segment of readSealed(file, sealing)) {
      for (const { offset, content } of runsIn(segment)) writeRun(memory, mappings, offset, content);
      await pause();
    }
  } finally {
    for (const fd of [file, memory]) closeSync(fd);
  }
}

function* runsIn(segment: Buffer): Generator<{ offset: number; content: Buffer }> {
  const count = segment.readUInt32BE();
  let at = 4 + RUN_BYTES * count;
  for (let i = 0; i < count; i++) {
    const offset = segment.readUInt32BE(4 + RUN_BYTES * i) * PAGE_BYTES;
    const end = at + segment.readUInt32BE(8 + RUN_BYTES * i) * PAGE_BYTES;
    yield { offset, content: segment.subarray(at, end) };
    at = end;
  }
}

/** Writes bytes of the memory file's `offset` to where the process maps them, which may be in several pieces. */
function writeRun(memory: number, mappings: readonly Mapping[], offset: number, content: Buffer): void {
  for (let done = 0; done < content.length; ) {
    const at = offset + done;
    const piece = mappings.find(
      ({ start, end, fileOffset }) => at >= fileOffset && at < fileOffset + end - start,
    );
    if (!piece) throw new UnusableSnapshot("the sealed memory is larger than the machine's");
    const address = piece.start + at - piece.fileOffset;
    const bytes = Math.min(content.length - done, piece.end - address);
    writeFully(memory, content.subarray(done, done + bytes), address);
    done += bytes;
  }
}

/** Returns a function that gives the thread's other jobs their turn. */
function pacer(now: () => number): () => Promise<void> {
  let turnAt = now() + TURN_MS;
  return async () => {
    if (now() < turnAt) return;
    await setImmediate();
    turnAt = now() + TURN_MS;
  };
}

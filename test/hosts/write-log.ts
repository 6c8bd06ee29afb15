/**
 * What a disk holds after a power cut. QEMU's driver `blklogwrites` logs every write and flush of the host, in the format
 * of Linux's dm-log-writes. All that came before the last flush is on the disk; each write after it may be there or not,
 * as with the cache of a real disk.
 */
import { type FileHandle, open } from "node:fs/promises";

const MAGIC = 0x6a736677736872n;
/** Kind of an entry (`flags`). */
const FLUSH = 1n;
const FUA = 2n;
const DISCARD = 4n;
const MARK = 8n;
/** Addresses count in these, whatever the log's own sector size is. */
const HEADER_BYTES = 32;
const COPY_BYTES = 1024 * 1024;

export interface LogEntry {
  /** Offset and length on the disk, in bytes. */
  at: number;
  length: number;
  kind: "write" | "durable write" | "discard" | "flush" | "mark";
  /** Where the data of a write is in the log. */
  dataAt: number;
  /** Where the entry ends in the log. */
  end: number;
}

/** Reads the entries of a log, oldest first; of one that was cut off, those that are whole. */
export async function* readLog(log: FileHandle): AsyncGenerator<LogEntry> {
  const { size } = await log.stat();
  const head = await read(log, 0, HEADER_BYTES);
  if (head.readBigUInt64LE(0) !== MAGIC)
    throw new Error("this is no log of writes: its first bytes are wrong");
  const sector = head.readUInt32LE(24);
  for (let at = sector; at + sector <= size; ) {
    const entry = await read(log, at, HEADER_BYTES);
    const [block, blocks, flags] = [0, 8, 16].map((offset) => entry.readBigUInt64LE(offset)) as [
      bigint,
      bigint,
      bigint,
    ];
    const length = Number(blocks) * sector;
    const kind = kindOf(flags, length);
    const dataAt = at + sector;
    const dataLength = kind === "write" || kind === "durable write" ? length : 0;
    const end = dataAt + dataLength;
    if (end > size) return;
    yield { at: Number(block) * sector, length, kind, dataAt, end };
    at = end;
  }
}

function kindOf(flags: bigint, length: number): LogEntry["kind"] {
  if (flags & MARK) return "mark";
  if (flags & DISCARD) return "discard";
  if (length === 0) return "flush";
  return flags & (FUA | FLUSH) ? "durable write" : "write";
}

/** Places in the log, after `from`, at which a power cut can lose writes: some are not flushed there. */
export async function unsafeEnds(logFile: string, from: number): Promise<number[]> {
  const log = await open(logFile, "r");
  const ends: number[] = [];
  let isUnflushed = false;
  for await (const { kind, end } of readLog(log)) {
    if (kind === "flush") isUnflushed = false;
    if (kind === "write") isUnflushed = true;
    if (isUnflushed && end > from) ends.push(end);
  }
  await log.close();
  return ends;
}

/**
 * Writes to the disk what survives a power cut at the end of the log. `survives` decides for each write that no flush
 * followed. Returns what was lost.
 */
export async function replay(
  logFile: string,
  diskFile: string,
  survives: () => boolean,
): Promise<{ writes: number; lost: number }> {
  const log = await open(logFile, "r");
  const disk = await open(diskFile, "r+");
  try {
    const flushed = await countUntilLastFlush(log);
    let number = 0;
    let writes = 0;
    let lost = 0;
    for await (const entry of readLog(log)) {
      const isDurable = number++ < flushed || entry.kind === "durable write";
      // A discard only says that nobody needs the old data.
      if (entry.kind !== "write" && entry.kind !== "durable write") continue;
      writes++;
      if (isDurable || survives()) await copy(log, entry, disk);
      else lost++;
    }
    await disk.sync();
    return { writes, lost };
  } finally {
    await log.close();
    await disk.close();
  }
}

async function countUntilLastFlush(log: FileHandle): Promise<number> {
  let count = 0;
  let flushed = 0;
  for await (const { kind } of readLog(log)) {
    count++;
    if (kind === "flush") flushed = count;
  }
  return flushed;
}

async function copy(log: FileHandle, entry: LogEntry, disk: FileHandle): Promise<void> {
  for (let done = 0; done < entry.length; done += COPY_BYTES) {
    const chunk = await read(log, entry.dataAt + done, Math.min(COPY_BYTES, entry.length - done));
    await disk.write(chunk, 0, chunk.length, entry.at + done);
  }
}

async function read(file: FileHandle, at: number, length: number): Promise<Buffer> {
  const { buffer, bytesRead } = await file.read(Buffer.alloc(length), 0, length, at);
  if (bytesRead < length) throw new Error(`the log ends within an entry, at byte ${at + bytesRead}`);
  return buffer;
}

/**
 * FIFOs through which QEMU gets and gives what must not be in a file: it opens them by their paths, as files. Nothing here waits
 * for QEMU while it holds up the daemon, because a guest may have taken QEMU over.
 */
import { closeSync, constants, lstatSync, openSync, readSync, rmSync, writeSync } from "node:fs";
import { chown } from "node:fs/promises";
import { sleep } from "@vivarium/kit/clock";
import { KIB } from "@vivarium/kit/sizes";
import { run } from "./run.ts";

const { O_NONBLOCK, O_RDWR, O_WRONLY } = constants;
/** How often to look whether the other side has read or written. */
const LOOK_MS = 1;
const READ_BYTES = 64 * KIB;

/** Makes a FIFO that only root and this user may open. */
export async function makeFifo(file: string, uid: number): Promise<void> {
  await run("mkfifo", ["-m", "600", file]);
  await chown(file, uid, uid);
}

/** Waits for a reader, gives it the whole content and then the end of a file, and removes the FIFO. */
export async function feedOnce(
  file: string,
  content: string,
  { limitMs, alive }: { limitMs: number; alive: () => boolean },
): Promise<void> {
  const deadline = Date.now() + limitMs;
  await feed(file, Buffer.from(content), () => {
    if (!alive()) throw new Error("QEMU ended before it read its key");
    if (Date.now() > deadline) throw new Error(`QEMU did not read its key within ${limitMs} ms`);
  });
}

/** As `feedOnce`, for a process that reads the FIFO while `work` is in progress. */
export async function feedDuring<T>(file: string, content: Buffer, work: () => Promise<T>): Promise<T> {
  const worked = ended(work());
  const fed = feed(file, content, () => {
    if (worked.isOver) throw new NotRead();
  });
  // A reader that has enough may leave. If it failed, the work says so.
  await fed.catch((error: NodeJS.ErrnoException) => {
    if (!(error instanceof NotRead) && error.code !== "EPIPE") throw error;
  });
  return await worked.result;
}

class NotRead extends Error {}

/** `check` throws once nobody is going to read any more. */
async function feed(file: string, content: Buffer, check: () => void): Promise<void> {
  let fd: number | undefined;
  try {
    for (;;) {
      // Without a reader this fails, and a FIFO that nobody has open would forget what was written into it.
      fd = tryTo(() => openSync(file, O_WRONLY | O_NONBLOCK));
      if (fd !== undefined) break;
      check();
      await sleep(LOOK_MS);
    }
    const open = fd;
    for (let done = 0; done < content.length; ) {
      const written = tryTo(() => writeSync(open, content, done));
      done += written ?? 0;
      if (written !== undefined) continue;
      check();
      await sleep(LOOK_MS);
    }
  } finally {
    rmSync(file, { force: true });
    if (fd !== undefined) closeSync(fd);
  }
}

/**
 * Gathers what another process writes into the FIFO while `work`, which makes it write, is in progress. Both ends are open
 * here, so that the other process does not wait for one. The FIFO is removed at the end: who opens it too late fails, and does not
 * wait for ever.
 */
export async function gatherDuring(
  file: string,
  limitBytes: number,
  work: () => Promise<unknown>,
): Promise<Buffer> {
  const fd = openSync(file, O_RDWR | O_NONBLOCK);
  const worked = ended(work());
  const parts: Buffer[] = [];
  try {
    for (let left = limitBytes; left >= 0; ) {
      // Asked before the read: what was written by the end of the work is read after it.
      const isLast = worked.isOver;
      const buffer = Buffer.alloc(READ_BYTES);
      const got = tryTo(() => readSync(fd, buffer));
      if (got === undefined && isLast) {
        await worked.result;
        return Buffer.concat(parts);
      }
      if (got === undefined) await sleep(LOOK_MS);
      else parts.push(buffer.subarray(0, got));
      left -= got ?? 0;
    }
    throw new Error(`QEMU wrote more than ${limitBytes} bytes`);
  } finally {
    rmSync(file, { force: true });
    closeSync(fd);
  }
}

/** Whether the work is over, for those who look now and then. A failure that nobody awaits is not unhandled. */
function ended<T>(work: Promise<T>): { isOver: boolean; result: Promise<T> } {
  const ending = { isOver: false, result: work };
  const end = () => {
    ending.isOver = true;
  };
  work.then(end, end);
  return ending;
}

/** Removes a FIFO that a daemon left when it died. A process that waits for its other end finds it closed. */
export function abandonFifo(file: string): void {
  if (!lstatSync(file, { throwIfNoEntry: false })?.isFIFO()) return;
  const fd = openSync(file, O_RDWR | O_NONBLOCK);
  rmSync(file, { force: true });
  closeSync(fd);
}

/** Undefined if the pipe is full or empty, or nobody reads it yet. */
function tryTo(transfer: () => number): number | undefined {
  try {
    return transfer();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EAGAIN" || code === "ENXIO") return undefined;
    throw error;
  }
}

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

/** Waits for a reader, gives it the whole content, and removes the FIFO. `content` fits into a pipe. */
export async function feedOnce(
  file: string,
  content: string,
  { limitMs, alive }: { limitMs: number; alive: () => boolean },
): Promise<void> {
  const deadline = Date.now() + limitMs;
  try {
    for (;;) {
      const fd = openIfRead(file);
      if (fd !== undefined) {
        try {
          return void writeSync(fd, content);
        } finally {
          closeSync(fd);
        }
      }
      if (!alive()) throw new Error("QEMU ended before it read its key");
      if (Date.now() > deadline) throw new Error(`QEMU did not read its key within ${limitMs} ms`);
      await sleep(LOOK_MS);
    }
  } finally {
    rmSync(file, { force: true });
  }
}

function openIfRead(file: string): number | undefined {
  try {
    return openSync(file, O_WRONLY | O_NONBLOCK);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENXIO") return undefined;
    throw error;
  }
}

/** Gives `content` to the process that reads the FIFO while `work`, which makes it read, is in progress. */
export async function feedDuring<T>(file: string, content: Buffer, work: () => Promise<T>): Promise<T> {
  return await withBothEnds(file, work, async (fd, isOver) => {
    for (let done = 0; done < content.length && !isOver(); ) {
      const written = tryTo(() => writeSync(fd, content, done));
      if (written === undefined) await sleep(LOOK_MS);
      else done += written;
    }
  });
}

/** Gathers what another process writes into the FIFO while `work`, which makes it write, is in progress. */
export async function gatherDuring(
  file: string,
  limitBytes: number,
  work: () => Promise<unknown>,
): Promise<Buffer> {
  const parts: Buffer[] = [];
  await withBothEnds(file, work, async (fd, isOver) => {
    for (let left = limitBytes; ; ) {
      // Asked before the read: what was written by the end of the work is read after it.
      const isLast = isOver();
      const buffer = Buffer.alloc(READ_BYTES);
      const got = tryTo(() => readSync(fd, buffer));
      if (got === undefined && isLast) return;
      if (got === undefined) await sleep(LOOK_MS);
      else parts.push(buffer.subarray(0, got));
      left -= got ?? 0;
      if (left < 0) throw new Error(`QEMU wrote more than ${limitBytes} bytes`);
    }
  });
  return Buffer.concat(parts);
}

/**
 * Opens both ends, so that the other process does not wait for one, and runs the work beside the transfer. If the transfer
 * fails, the work is not waited for: its process finds the FIFO closed. The FIFO is removed, so that a process which opens it
 * too late fails, and does not wait for ever.
 */
async function withBothEnds<T>(
  file: string,
  work: () => Promise<T>,
  transfer: (fd: number, isOver: () => boolean) => Promise<void>,
): Promise<T> {
  const fd = openSync(file, O_RDWR | O_NONBLOCK);
  let isOver = false;
  const worked = work().finally(() => {
    isOver = true;
  });
  worked.catch(() => {});
  const transferred = transfer(fd, () => isOver);
  try {
    await Promise.race([worked, transferred.then(() => worked)]);
    await transferred;
    return await worked;
  } finally {
    isOver = true;
    // Another file may get the number of a closed descriptor.
    await transferred.catch(() => {});
    rmSync(file, { force: true });
    closeSync(fd);
  }
}

/** Removes a FIFO that a daemon left when it died. A process that waits for its other end finds it closed. */
export function abandonFifo(file: string): void {
  if (!lstatSync(file, { throwIfNoEntry: false })?.isFIFO()) return;
  const fd = openSync(file, O_RDWR | O_NONBLOCK);
  rmSync(file, { force: true });
  closeSync(fd);
}

/** Undefined if the pipe is full, or empty. */
function tryTo(transfer: () => number): number | undefined {
  try {
    return transfer();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EAGAIN") return undefined;
    throw error;
  }
}

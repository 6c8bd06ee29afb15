/**
 * Packs or unpacks one saved state for another process. It speaks over its file descriptor 3: first the order comes in, then it
 * asks for chunks, and gets them. It writes the outcome to standard output, as JSON.
 */
import { writeFileSync } from "node:fs";
import { Socket } from "node:net";
import { RelayedChunks } from "@vivarium/archive/relayed-chunks";
import { OpeningReader } from "@vivarium/contract/node";
import { armCrashPoint } from "@vivarium/kit/crash-point";
import { carryOut } from "./carry-out.ts";
import type { Order } from "./order.ts";

const CHANNEL = 3;
/** Out of memory, the kernel ends it before a machine. */
const OOM_SCORE_ADJ = "900";

/** Ends this process, because the other side may hold its half of the channel open for as long as it likes. */
export async function followOrder(): Promise<void> {
  writeFileSync("/proc/self/oom_score_adj", OOM_SCORE_ADJ);
  const channel = new Socket({ fd: CHANNEL, readable: true, writable: true, allowHalfOpen: true });
  const { order, answers } = await readOrder(channel);
  armCrashPoint(order.crash.at, order.crash.dir);
  const outcome = await carryOut(new RelayedChunks(channel, answers), order);
  process.stdout.write(JSON.stringify(outcome), () => process.exit(0));
}

async function readOrder(
  from: AsyncIterable<Buffer>,
): Promise<{ order: Order; answers: AsyncIterable<Buffer> }> {
  const pieces = from[Symbol.asyncIterator]();
  const reader = new OpeningReader();
  for (;;) {
    const piece = await pieces.next();
    if (piece.done) throw new Error("there was no order");
    const opening = reader.push(piece.value);
    if (opening) return { order: opening.value as Order, answers: beginningWith(opening.rest, pieces) };
  }
}

async function* beginningWith(first: Buffer, rest: AsyncIterator<Buffer>): AsyncGenerator<Buffer> {
  yield first;
  yield* { [Symbol.asyncIterator]: () => rest };
}

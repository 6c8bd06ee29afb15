/** Answers another process that asks for chunks. It may do with the chunks of this place what it likes, and reaches no others. */
import type { Writable } from "node:stream";
import { MIB } from "@vivarium/kit/sizes";
import { messageOf } from "@vivarium/kit/unknown-error";
import type { ChunkStore } from "./chunk-store.ts";
import { MOST_CONTENTS_BYTES } from "./contents.ts";
import { objectBytes } from "./envelope.ts";
import { BrokenRelay, type Frame, NAME_BYTES, readFrames, TYPES, writeFrame } from "./frames.ts";
import { UnusableArchive } from "./unusable-archive.ts";

/** Asks that are answered at once. Further ones are not read meanwhile. */
const ASKS_AT_ONCE = 8;
/** Bytes of asks that wait for their answers. One more may be read, so that any ask is answered. */
const WAITING_BYTES = 16 * MIB;
const NAMES_IN_A_PART = 1000;
const MOST_BYTES = objectBytes(MOST_CONTENTS_BYTES);

/**
 * Returns when the asks have ended and all are answered, with the payload of the result that came last, if there was one.
 * Throws BrokenRelay if the asks are not what they must be.
 */
export async function serveChunks(
  store: ChunkStore,
  asks: AsyncIterable<Uint8Array>,
  answers: Writable,
  signal?: AbortSignal,
): Promise<Buffer | undefined> {
  const running = new Set<Promise<void>>();
  let waiting = 0;
  let failure: unknown;
  let result: Buffer | undefined;
  // The failure of a write is that of its answer.
  answers.on("error", () => undefined);
  try {
    for await (const frame of readFrames(asks)) {
      signal?.throwIfAborted();
      if (result) throw new BrokenRelay("a frame came after the result");
      if (frame.type === TYPES.result) {
        result = frame.payload;
        continue;
      }
      const work: Promise<void> = answer(store, frame, answers, signal)
        .catch((error: unknown) => {
          failure ??= error;
        })
        .finally(() => {
          running.delete(work);
          waiting -= frame.payload.length;
        });
      running.add(work);
      waiting += frame.payload.length;
      while (running.size >= ASKS_AT_ONCE || waiting > WAITING_BYTES) await Promise.race(running);
      if (failure !== undefined) break;
    }
  } finally {
    await Promise.all(running);
  }
  if (failure !== undefined) throw failure;
  return result;
}

/** Fails only if the answer cannot be written, or if it is no ask. */
async function answer(
  store: ChunkStore,
  { type, ask, payload }: Frame,
  to: Writable,
  signal: AbortSignal | undefined,
): Promise<void> {
  try {
    await writeFrame(to, TYPES.end, ask, await answerOf(store, { type, ask, payload }, to, signal));
  } catch (error) {
    if (error instanceof BrokenRelay) throw error;
    signal?.throwIfAborted();
    const reason = error instanceof UnusableArchive ? error.reason : undefined;
    const text = JSON.stringify({ reason, message: messageOf(error) });
    await writeFrame(to, TYPES.failed, ask, Buffer.from(text));
  }
}

async function answerOf(
  store: ChunkStore,
  { type, ask, payload }: Frame,
  to: Writable,
  signal: AbortSignal | undefined,
): Promise<Buffer> {
  if (type === TYPES.names) return await writeNames(store, ask, to);
  const name = payload.subarray(0, NAME_BYTES).toString("hex");
  const rest = payload.subarray(NAME_BYTES);
  if (name.length !== NAME_BYTES * 2) throw new BrokenRelay("an ask has no name");
  if (type === TYPES.put) {
    await store.put(name, rest, signal);
    return Buffer.alloc(0);
  }
  if (type !== TYPES.get || rest.length !== 4) throw new BrokenRelay(`a frame of the type ${type} is no ask`);
  return await store.get(name, Math.min(rest.readUInt32BE(), MOST_BYTES), signal);
}

/** Returns the last names, after the others are written. */
async function writeNames(store: ChunkStore, ask: number, to: Writable): Promise<Buffer> {
  let names: string[] = [];
  for await (const name of store.names()) {
    names.push(name);
    if (names.length < NAMES_IN_A_PART) continue;
    await writeFrame(to, TYPES.part, ask, Buffer.from(names.join(""), "hex"));
    names = [];
  }
  return Buffer.from(names.join(""), "hex");
}

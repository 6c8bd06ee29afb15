/**
 * Frames of the two byte streams between a process that has a store and another one that packs or unpacks.
 *
 *   frame   type, 1 byte | number of the ask, uint32 big-endian | length, uint32 big-endian | payload
 *
 * Asks: `names`; `put` with a name (32 bytes) and the object; `get` with a name and the most bytes (uint32). Answers to an ask:
 * any number of `part`, then `end`, or `failed` with a reason and a message as JSON. Who asks may send a `result` last, with the
 * ask number 0, which is not answered.
 */
import type { Writable } from "node:stream";
import { MOST_CONTENTS_BYTES } from "./contents.ts";
import { objectBytes } from "./envelope.ts";

export const TYPES = { names: 1, put: 2, get: 3, part: 4, end: 5, failed: 6, result: 7 } as const;
export type FrameType = (typeof TYPES)[keyof typeof TYPES];
export const NAME_BYTES = 32;
const HEAD_BYTES = 9;
/** Enough for a name and the largest object. */
const MOST_PAYLOAD_BYTES = NAME_BYTES + objectBytes(MOST_CONTENTS_BYTES);

export interface Frame {
  type: number;
  ask: number;
  payload: Buffer;
}

/** The other side does not keep to the frames, or has left. */
export class BrokenRelay extends Error {}

/** Resolves once the stream has taken it, so that a sender is no faster than the other side. */
export async function writeFrame(to: Writable, type: FrameType, ask: number, ...payload: Uint8Array[]) {
  const head = Buffer.alloc(HEAD_BYTES);
  head.writeUInt8(type);
  head.writeUInt32BE(ask, 1);
  head.writeUInt32BE(
    payload.reduce((sum, part) => sum + part.length, 0),
    5,
  );
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const leave = (cause?: Error) => reject(new BrokenRelay("the other side has left", { cause }));
  const writes = writesTo(to);
  writes.add(leave);
  to.write(Buffer.concat([head, ...payload]), (error) => (error ? leave(error) : resolve()));
  await promise.finally(() => writes.delete(leave));
}

const writesOf = new WeakMap<Writable, Set<() => void>>();

/**
 * The writes that the stream has not taken. They fail when it closes: a request or response of HTTP drops what is written
 * while its connection breaks, without calling back.
 */
function writesTo(stream: Writable): Set<() => void> {
  const known = writesOf.get(stream);
  if (known) return known;
  const writes = new Set<() => void>();
  writesOf.set(stream, writes);
  stream.once("close", () => {
    for (const leave of writes) leave();
  });
  return writes;
}

/** Throws BrokenRelay at a frame that is too long, and if the stream ends within one. */
export async function* readFrames(from: AsyncIterable<Uint8Array>): AsyncGenerator<Frame> {
  let kept: Uint8Array[] = [];
  let bytes = 0;
  let wanted = HEAD_BYTES;
  for await (const piece of from) {
    kept.push(piece);
    bytes += piece.length;
    while (bytes >= wanted) {
      const whole = Buffer.concat(kept);
      const length = whole.readUInt32BE(5);
      if (length > MOST_PAYLOAD_BYTES) throw new BrokenRelay(`a frame has ${length} bytes`);
      wanted = HEAD_BYTES + length;
      kept = [whole];
      if (bytes < wanted) break;
      const payload = Buffer.from(whole.subarray(HEAD_BYTES, wanted));
      yield { type: whole.readUInt8(), ask: whole.readUInt32BE(1), payload };
      kept = [whole.subarray(wanted)];
      bytes -= wanted;
      wanted = HEAD_BYTES;
    }
  }
  if (bytes > 0) throw new BrokenRelay("the stream ended within a frame");
}

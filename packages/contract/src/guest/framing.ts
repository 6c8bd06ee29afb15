/** How all frames between agent and host are written: 1 byte type, 4 bytes payload length (big-endian), payload. */
import { GUEST_LIMITS } from "./channel.ts";

export interface Framed {
  type: number;
  payload: Buffer;
}

const HEADER_BYTES = 5;

export function encodeFramed(type: number, payload: Uint8Array | string): Buffer {
  const body = typeof payload === "string" ? Buffer.from(payload) : payload;
  const out = Buffer.allocUnsafe(HEADER_BYTES + body.length);
  out[0] = type;
  out.writeUInt32BE(body.length, 1);
  out.set(body, HEADER_BYTES);
  return out;
}

/** Cuts a byte stream into frames. Throws FrameError on a length over the cap, and on a type that `isKnown` denies. */
export class FramedDecoder {
  readonly #isKnown: (type: number) => boolean;
  #pending: Buffer = Buffer.alloc(0);

  constructor(isKnown: (type: number) => boolean = () => true) {
    this.#isKnown = isKnown;
  }

  push(chunk: Buffer): Framed[] {
    let rest = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk]);
    const frames: Framed[] = [];
    while (rest.length >= HEADER_BYTES) {
      const type = rest[0] as number;
      const length = rest.readUInt32BE(1);
      if (!this.#isKnown(type)) throw new FrameError(`unknown frame type ${type}`);
      if (length > GUEST_LIMITS.framePayloadBytes)
        throw new FrameError(`frame of ${length} bytes is over the cap`);
      if (rest.length < HEADER_BYTES + length) break;
      frames.push({ type, payload: rest.subarray(HEADER_BYTES, HEADER_BYTES + length) });
      rest = rest.subarray(HEADER_BYTES + length);
    }
    this.#pending = rest;
    return frames;
  }

  /** True when the stream may end here: no half frame is left. */
  get isBetweenFrames(): boolean {
    return this.#pending.length === 0;
  }
}

export class FrameError extends Error {}

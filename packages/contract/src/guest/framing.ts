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

/**
 * Cuts a byte stream into frames. Throws FrameError on a length over the cap, and on a type that `isKnown` denies; what
 * came whole before that is there first, however the bytes were cut into chunks.
 */
export class FramedDecoder {
  readonly #isKnown: (type: number) => boolean;
  #pending: Buffer = Buffer.alloc(0);

  constructor(isKnown: (type: number) => boolean = () => true) {
    this.#isKnown = isKnown;
  }

  /** The frames that this chunk completes, to be taken before the next one. */
  *push(chunk: Buffer): Generator<Framed, void> {
    this.#pending = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk]);
    while (this.#pending.length >= HEADER_BYTES) {
      const type = this.#pending[0] as number;
      const end = HEADER_BYTES + this.#pending.readUInt32BE(1);
      if (!this.#isKnown(type)) throw new FrameError(`unknown frame type ${type}`);
      if (end - HEADER_BYTES > GUEST_LIMITS.framePayloadBytes)
        throw new FrameError(`frame of ${end - HEADER_BYTES} bytes is over the cap`);
      if (this.#pending.length < end) return;
      const payload = this.#pending.subarray(HEADER_BYTES, end);
      this.#pending = this.#pending.subarray(end);
      yield { type, payload };
    }
  }

  /** True when the stream may end here: no half frame is left. */
  get isBetweenFrames(): boolean {
    return this.#pending.length === 0;
  }
}

export class FrameError extends Error {}

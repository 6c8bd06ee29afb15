/** How all frames between agent and host are written: 1 byte type, 4 bytes payload length (big-endian), payload. */
import { GUEST_LIMITS } from "./channel.ts";

export interface Framed {
  type: number;
  payload: Buffer;
  /** As it came, its header with it. */
  whole: Buffer;
}

const HEADER_BYTES = 5;
const HEADER_MISSING = 0;

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
  /** A frame that has begun: its first bytes, and how many. */
  #begun: Buffer[] = [];
  #begunBytes = 0;

  constructor(isKnown: (type: number) => boolean = () => true) {
    this.#isKnown = isKnown;
  }

  /** The frames that this chunk completes, to be taken before the next one. What lies whole in it is not copied. */
  *push(chunk: Buffer): Generator<Framed, void> {
    let rest = chunk;
    while (rest.length > 0) {
      const bytes = this.#bytesOfFrame(rest);
      const missing = bytes - this.#begunBytes;
      if (rest.length < missing || bytes === HEADER_MISSING) {
        this.#begun.push(rest);
        this.#begunBytes += rest.length;
        return;
      }
      const end = rest.subarray(0, missing);
      const whole = this.#begunBytes === 0 ? end : Buffer.concat([...this.#begun, end], bytes);
      this.#begun = [];
      this.#begunBytes = 0;
      rest = rest.subarray(missing);
      yield { type: whole[0] as number, payload: whole.subarray(HEADER_BYTES), whole };
    }
  }

  /** True when the stream may end here: no half frame is left. */
  get isBetweenFrames(): boolean {
    return this.#begunBytes === 0;
  }

  /** Of the frame that has begun, or begins here, its header with it. */
  #bytesOfFrame(rest: Buffer): number {
    if (this.#begunBytes + rest.length < HEADER_BYTES) return HEADER_MISSING;
    const header = this.#begunBytes === 0 ? rest : this.#header(rest);
    const type = header[0] as number;
    const bytes = header.readUInt32BE(1);
    if (!this.#isKnown(type)) throw new FrameError(`unknown frame type ${type}`);
    if (bytes > GUEST_LIMITS.framePayloadBytes)
      throw new FrameError(`frame of ${bytes} bytes is over the cap`);
    return HEADER_BYTES + bytes;
  }

  #header(rest: Buffer): Buffer {
    const [first] = this.#begun;
    if (first && first.length >= HEADER_BYTES) return first;
    return Buffer.concat([...this.#begun, rest.subarray(0, HEADER_BYTES)]);
  }
}

export class FrameError extends Error {}

/** How all frames between agent and host are written: 1 byte type, 4 bytes payload length (big-endian), payload. */
import { GUEST_LIMITS } from "./channel.ts";

export interface Framed<Type extends number = number> {
  type: Type;
  payload: Buffer;
  /** The frame as sent, with its header. */
  whole: Buffer;
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
 * Cuts a byte stream into frames. Throws FrameError on a length over the cap, and on a type that `isKnown` rejects.
 * Whole frames before that are returned first, however the bytes were cut into chunks.
 */
export class FramedDecoder<Type extends number = number> {
  readonly #isKnown: (type: number) => boolean;
  readonly #header = Buffer.alloc(HEADER_BYTES);
  /** Buffer of a frame that arrives in several chunks; undefined until its header is whole. */
  #frame: Buffer | undefined;
  /** Received bytes of the pending frame, or of its header. */
  #have = 0;

  constructor(isKnown: (type: number) => boolean = () => true) {
    this.#isKnown = isKnown;
  }

  /**
   * Yields the frames that this chunk completes; read them all before the next `push`. A frame that is whole in the
   * chunk is not copied. An unfinished one is copied, because a slice of one byte would keep the whole chunk in
   * memory.
   */
  *push(chunk: Buffer): Generator<Framed<Type>, void> {
    let rest = chunk;
    while (rest.length > 0) {
      if (this.#have === 0 && rest.length >= HEADER_BYTES) {
        const bytes = this.#bytesOf(rest);
        if (rest.length >= bytes) {
          yield this.#framed(rest.subarray(0, bytes));
          rest = rest.subarray(bytes);
          continue;
        }
      }
      const taken = this.#keep(rest);
      rest = rest.subarray(taken);
      const whole = this.#takeWhole();
      if (whole) yield this.#framed(whole);
    }
  }

  /** Whether no frame is pending, so that the stream may end here. */
  get isBetweenFrames(): boolean {
    return this.#have === 0;
  }

  #keep(rest: Buffer): number {
    const taken = rest.copy(this.#frame ?? this.#header, this.#have);
    this.#have += taken;
    if (!this.#frame && this.#have === HEADER_BYTES) {
      this.#frame = Buffer.allocUnsafeSlow(this.#bytesOf(this.#header));
      this.#header.copy(this.#frame);
    }
    return taken;
  }

  #takeWhole(): Buffer | undefined {
    const whole = this.#frame;
    if (!whole || this.#have < whole.length) return undefined;
    this.#frame = undefined;
    this.#have = 0;
    return whole;
  }

  /** Bytes of the frame with this header, including the header. */
  #bytesOf(header: Buffer): number {
    const type = header[0] as number;
    const bytes = header.readUInt32BE(1);
    if (!this.#isKnown(type)) throw new FrameError(`unknown frame type ${type}`);
    if (bytes > GUEST_LIMITS.framePayloadBytes)
      throw new FrameError(`frame of ${bytes} bytes is over the cap`);
    return HEADER_BYTES + bytes;
  }

  #framed(whole: Buffer): Framed<Type> {
    return { type: whole[0] as Type, payload: whole.subarray(HEADER_BYTES), whole };
  }
}

export class FrameError extends Error {}

/**
 * Frames of an exec answer, agent → node → control: 1 byte type, 4 bytes payload length (big-endian), payload.
 *
 *   0x01 stdout   raw bytes, at most 64 KiB
 *   0x02 stderr   raw bytes, at most 64 KiB
 *   0x03 exit     JSON ExecEnd; the last frame
 *   0x04 error    JSON {message}; the last frame: the agent could not follow the command to its end
 *   0x05 eof      JSON LogEnd; the last frame of a log (processes.ts), which has no exit
 *
 * A stream that ends without one of the last three was broken off and is an error, never an exit.
 */
import { GUEST_LIMITS } from "./channel.ts";

export const FRAME = { stdout: 0x01, stderr: 0x02, exit: 0x03, error: 0x04, eof: 0x05 } as const;
export type FrameType = (typeof FRAME)[keyof typeof FRAME];
export interface Frame {
  type: FrameType;
  payload: Buffer;
}

const HEADER_BYTES = 5;
const TYPES: ReadonlySet<number> = new Set(Object.values(FRAME));

export function encodeFrame(type: FrameType, payload: Uint8Array | string): Buffer {
  const body = typeof payload === "string" ? Buffer.from(payload) : payload;
  const out = Buffer.allocUnsafe(HEADER_BYTES + body.length);
  out[0] = type;
  out.writeUInt32BE(body.length, 1);
  out.set(body, HEADER_BYTES);
  return out;
}

/** Cuts a byte stream into frames. Throws FrameError on an unknown type or a length over the cap. */
export class FrameDecoder {
  #pending: Buffer = Buffer.alloc(0);

  push(chunk: Buffer): Frame[] {
    let rest = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk]);
    const frames: Frame[] = [];
    while (rest.length >= HEADER_BYTES) {
      const type = rest[0] as number;
      const length = rest.readUInt32BE(1);
      if (!TYPES.has(type)) throw new FrameError(`unknown frame type ${type}`);
      if (length > GUEST_LIMITS.framePayloadBytes)
        throw new FrameError(`frame of ${length} bytes is over the cap`);
      if (rest.length < HEADER_BYTES + length) break;
      frames.push({ type: type as FrameType, payload: rest.subarray(HEADER_BYTES, HEADER_BYTES + length) });
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

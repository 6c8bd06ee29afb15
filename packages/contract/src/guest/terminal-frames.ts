/** The frames of terminals.ts as bytes. The types are the reader's business: those it does not know it ignores. */
import { GUEST_LIMITS } from "./channel.ts";
import { FrameError } from "./frames.ts";

export interface TerminalFrame {
  type: number;
  payload: Buffer;
}

const HEADER_BYTES = 5;

export function encodeTerminalFrame(type: number, payload: Uint8Array): Buffer {
  const out = Buffer.allocUnsafe(HEADER_BYTES + payload.length);
  out[0] = type;
  out.writeUInt32BE(payload.length, 1);
  out.set(payload, HEADER_BYTES);
  return out;
}

/** Cuts a byte stream into frames. Throws FrameError on a length over the cap, which bounds what it keeps. */
export class TerminalFrameDecoder {
  #pending: Buffer = Buffer.alloc(0);

  push(chunk: Buffer): TerminalFrame[] {
    let rest = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk]);
    const frames: TerminalFrame[] = [];
    while (rest.length >= HEADER_BYTES) {
      const length = rest.readUInt32BE(1);
      if (length > GUEST_LIMITS.framePayloadBytes)
        throw new FrameError(`frame of ${length} bytes is over the cap`);
      if (rest.length < HEADER_BYTES + length) break;
      frames.push({ type: rest[0] as number, payload: rest.subarray(HEADER_BYTES, HEADER_BYTES + length) });
      rest = rest.subarray(HEADER_BYTES + length);
    }
    this.#pending = rest;
    return frames;
  }
}

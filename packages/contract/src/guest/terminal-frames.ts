/** The frames of terminals.ts as bytes. Any type is decoded; the reader ignores types that it does not know. */
import { encodeFramed, type Framed, FramedDecoder } from "./framing.ts";

export type TerminalFrame = Pick<Framed, "type" | "payload">;

export function encodeTerminalFrame(type: number, payload: Uint8Array): Buffer {
  return encodeFramed(type, payload);
}

/** Keeps at most one frame, whose size is capped. */
export class TerminalFrameDecoder extends FramedDecoder {}

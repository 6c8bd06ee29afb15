/** The frames of terminals.ts as bytes. The types are the reader's business: those it does not know it ignores. */
import { encodeFramed, type Framed, FramedDecoder } from "./framing.ts";

export type TerminalFrame = Pick<Framed, "type" | "payload">;

export function encodeTerminalFrame(type: number, payload: Uint8Array): Buffer {
  return encodeFramed(type, payload);
}

/** Bounded by the cap on a frame: it keeps no more than one. */
export class TerminalFrameDecoder extends FramedDecoder {}

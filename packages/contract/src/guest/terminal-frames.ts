/** The frames of terminals.ts as bytes. The reader decides about types: it ignores unknown ones. */
import { encodeFramed, type Framed, FramedDecoder } from "./framing.ts";

export type TerminalFrame = Pick<Framed, "type" | "payload">;

export function encodeTerminalFrame(type: number, payload: Uint8Array): Buffer {
  return encodeFramed(type, payload);
}

/** Bounded by the cap on a frame: keeps at most one. */
export class TerminalFrameDecoder extends FramedDecoder {}

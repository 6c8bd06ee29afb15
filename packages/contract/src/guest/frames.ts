/**
 * Frames of an exec answer, of a log and of a list, agent → node → control: 1 byte type, 4 bytes payload length
 * (big-endian), payload.
 *
 *   0x01 stdout   raw bytes, at most 64 KiB
 *   0x02 stderr   raw bytes, at most 64 KiB
 *   0x03 exit     JSON ExecEnd; the last frame
 *   0x04 error    JSON {message}; the last frame: the agent could not follow the command to its end
 *   0x05 eof      JSON; the last frame of a log (LogEnd of processes.ts) and of a list (lists.ts), which have no exit
 *   0x06 items    lines of JSON, an item of a list each; a line may continue in the next frame
 *
 * A stream that ends without exit, error or eof was broken off and is an error, never an exit.
 */
import { encodeFramed, type Framed, FramedDecoder } from "./framing.ts";

export const FRAME = { stdout: 0x01, stderr: 0x02, exit: 0x03, error: 0x04, eof: 0x05, items: 0x06 } as const;
export type FrameType = (typeof FRAME)[keyof typeof FRAME];
export type FrameAsSent = Framed<FrameType>;
export type Frame = Pick<FrameAsSent, "type" | "payload">;

const TYPES: ReadonlySet<number> = new Set(Object.values(FRAME));

export const encodeFrame: (type: FrameType, payload: Uint8Array | string) => Buffer = encodeFramed;

/** Decodes frames of these types; any other type is an error. */
export class FrameDecoder extends FramedDecoder<FrameType> {
  constructor() {
    super((type) => TYPES.has(type));
  }
}

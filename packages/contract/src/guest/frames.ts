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
import { encodeFramed, FramedDecoder } from "./framing.ts";

export const FRAME = { stdout: 0x01, stderr: 0x02, exit: 0x03, error: 0x04, eof: 0x05 } as const;
export type FrameType = (typeof FRAME)[keyof typeof FRAME];
export interface Frame {
  type: FrameType;
  payload: Buffer;
}

const TYPES: ReadonlySet<number> = new Set(Object.values(FRAME));

export function encodeFrame(type: FrameType, payload: Uint8Array | string): Buffer {
  return encodeFramed(type, payload);
}

/** As FramedDecoder, for these types alone. */
export class FrameDecoder extends FramedDecoder {
  constructor() {
    super((type) => TYPES.has(type));
  }

  override push(chunk: Buffer): Generator<Frame, void> {
    return super.push(chunk) as Generator<Frame, void>;
  }
}

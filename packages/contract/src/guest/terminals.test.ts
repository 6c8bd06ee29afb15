import { expect, test } from "vitest";
import { GUEST_LIMITS } from "./channel.ts";
import { FrameError } from "./framing.ts";
import {
  encodeTerminalFrame,
  TERMINAL_FRAME,
  type TerminalFrame,
  TerminalFrameDecoder,
} from "./terminals.ts";

test("frames are read back from chunks of any size", () => {
  const sent: TerminalFrame[] = [
    { type: TERMINAL_FRAME.data, payload: Buffer.from("hello") },
    { type: TERMINAL_FRAME.resize, payload: Buffer.from([0, 24, 0, 80]) },
    { type: 0x7f, payload: Buffer.alloc(0) },
    { type: TERMINAL_FRAME.exit, payload: Buffer.from([0, 0, 0, 1]) },
  ];
  const bytes = Buffer.concat(sent.map(({ type, payload }) => encodeTerminalFrame(type, payload)));
  for (const size of [1, 2, 6, bytes.length]) {
    const decoder = new TerminalFrameDecoder();
    const read: TerminalFrame[] = [];
    for (let start = 0; start < bytes.length; start += size)
      read.push(...decoder.push(bytes.subarray(start, start + size)));
    expect(read.map(({ type, payload }) => [type, [...payload]])).toEqual(
      sent.map(({ type, payload }) => [type, [...payload]]),
    );
  }
});

test("a length over the cap is refused before its bytes arrive", () => {
  const header = Buffer.alloc(5);
  header[0] = TERMINAL_FRAME.data;
  header.writeUInt32BE(GUEST_LIMITS.framePayloadBytes + 1, 1);
  expect(() => [...new TerminalFrameDecoder().push(header)]).toThrow(FrameError);
});

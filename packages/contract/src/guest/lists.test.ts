import fc from "fast-check";
import { expect, test } from "vitest";
import { z } from "zod";
import { encodeFrame, FRAME, FrameDecoder } from "./frames.ts";
import { encodeList, ITEM_BYTES, LISTS, ListError, ListReader, type ListShape } from "./lists.ts";

const SHAPE: ListShape<string, { n: number }> = {
  item: z.string(),
  end: z.object({ n: z.int() }),
  mostItems: 1000,
  mostBytes: 10 * ITEM_BYTES,
};

function read<Item, End>(
  shape: ListShape<Item, End>,
  frames: Buffer,
): { items: Item[]; end: End | undefined } {
  const reader = new ListReader(shape);
  const items = [...new FrameDecoder().push(frames)].flatMap((frame) => [...reader.read(frame)]);
  return { items, end: reader.end };
}

test("a list is read back as it was written, whatever its items contain", () => {
  const items = fc.array(fc.string({ unit: "binary", maxLength: 9000 }), { maxLength: 10 });
  const property = fc.property(items, fc.nat(), (given, n) => {
    expect(read(SHAPE, encodeList(given, { n }))).toEqual({ items: given, end: { n } });
  });
  fc.assert(property, { numRuns: 30 });
});

test("an item continues from frame to frame, wherever it is cut", () => {
  const line = Buffer.from('"one"\n"two\\n"\n');
  for (let at = 0; at <= line.length; at++) {
    const frames = [line.subarray(0, at), line.subarray(at)].map((piece) => encodeFrame(FRAME.items, piece));
    expect(read(SHAPE, Buffer.concat([...frames, encodeFrame(FRAME.eof, '{"n":1}')]))).toEqual({
      items: ["one", "two\n"],
      end: { n: 1 },
    });
  }
});

test("only the unfinished end of a frame is kept, as a copy", () => {
  const reader = new ListReader(SHAPE);
  const payload = Buffer.from('"read"\n"on');
  expect([...reader.read({ type: FRAME.items, payload })]).toEqual(["read"]);
  // As a reader of a socket reuses its memory.
  payload.fill(0);
  expect([...reader.read({ type: FRAME.items, payload: Buffer.from('e"\n') })]).toEqual(["one"]);
});

test("the largest items of a guest fit: a command that fills a request, a line with all its context", () => {
  const lines = Array.from({ length: 10 }, () => "\u0001".repeat(4096));
  const match = {
    path: `/${"\\x80".repeat(4095)}`,
    line_number: 1,
    line: lines[0],
    before: lines,
    after: lines,
  };
  const argv = Array.from({ length: 16 }, () => "x".repeat(64 * 1024 - 16));
  const process = { name: "a", argv, keep_alive: false, state: "running", started_at_ms: 1 };
  const end = { files_searched: 1, truncated: false, duration_us: 1 };
  expect(read(LISTS.matches, encodeList([match], end)).items).toEqual([match]);
  expect(read(LISTS.processes, encodeList([process], {})).items).toEqual([process]);
});

test.each([
  ["an item too many", encodeList(Array(1001).fill(""), { n: 1 })],
  ["an item of another shape", encodeList([1], { n: 1 })],
  ["an item that is no JSON", encodeFrame(FRAME.items, "x\n")],
  ["an empty line", encodeFrame(FRAME.items, "\n")],
  ["an item that is too long", encodeList(["x".repeat(ITEM_BYTES)], { n: 1 })],
  ["more bytes than may be", encodeList(Array(11).fill("x".repeat(ITEM_BYTES - 9)), { n: 1 })],
  ["more frames than may be, empty or not", Buffer.concat(Array(3000).fill(encodeFrame(FRAME.items, "")))],
  ["an end of another shape", encodeList([], {})],
  [
    "an end within an item",
    Buffer.concat([encodeFrame(FRAME.items, '"'), encodeFrame(FRAME.eof, '{"n":1}')]),
  ],
  ["output", encodeFrame(FRAME.stdout, "")],
])("refuses a list with %s", (_what, frames) => {
  expect(() => read(SHAPE, frames)).toThrow(ListError);
});

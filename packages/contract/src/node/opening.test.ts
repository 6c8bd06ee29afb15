import { expect, test } from "vitest";
import { encodeOpening, OPENING_LIMIT_BYTES, OpeningError, OpeningReader } from "./opening.ts";

const SPEC = { argv: ["sh", "-c", "echo é"], env: { A: "b" }, rows: 24, cols: 80 };

test("an opening is read back from chunks of any size, without the bytes after it", () => {
  const bytes = Buffer.concat([encodeOpening(SPEC), Buffer.from("stream")]);
  for (const size of [1, 3, 7, bytes.length]) {
    const reader = new OpeningReader();
    const rest: Buffer[] = [];
    let value: unknown;
    for (let start = 0; start < bytes.length; start += size) {
      const chunk = bytes.subarray(start, start + size);
      const read = value === undefined ? reader.push(chunk) : { value, rest: chunk };
      if (!read) continue;
      value = read.value;
      rest.push(read.rest);
    }
    expect(value).toEqual(SPEC);
    expect(Buffer.concat(rest).toString()).toBe("stream");
  }
});

test("a length over the limit is refused before its bytes arrive", () => {
  const header = Buffer.alloc(4);
  header.writeUInt32BE(OPENING_LIMIT_BYTES + 1);
  expect(() => new OpeningReader().push(header)).toThrow(OpeningError);
  expect(() => encodeOpening({ text: "x".repeat(OPENING_LIMIT_BYTES) })).toThrow(OpeningError);
});

test("an opening that is not JSON is refused", () => {
  expect(() => new OpeningReader().push(Buffer.from([0, 0, 0, 1, 0x7b]))).toThrow(OpeningError);
});

import { describe, expect, test } from "vitest";
import { OutputBuffer, withoutSplitCharacter } from "./output.ts";

function collected(limitBytes: number, ...chunks: (string | Buffer)[]) {
  const output = new OutputBuffer(limitBytes);
  for (const chunk of chunks) output.push(Buffer.from(chunk as string));
  return { ...output.toText(), isCut: output.isCut };
}

test("text comes back as it was, also when a character is split between chunks", () => {
  const bytes = Buffer.from("grün 🌍\0");
  expect(collected(100, bytes.subarray(0, 3), bytes.subarray(3, 8), bytes.subarray(8))).toEqual({
    text: "grün 🌍\0",
    isCut: false,
  });
});

test("bytes that are not UTF-8 come back as base64, whole", () => {
  const bytes = Buffer.from([0x61, 0xff, 0x62]);
  expect(collected(100, bytes)).toEqual({ text: bytes.toString("base64"), encoding: "base64", isCut: false });
  expect(collected(2, bytes)).toEqual({
    text: bytes.subarray(0, 2).toString("base64"),
    encoding: "base64",
    isCut: true,
  });
});

test("a stream that itself ends within a character is not UTF-8, a cut one is trimmed", () => {
  const euro = Buffer.from("a€");
  expect(collected(100, euro.subarray(0, 3)).encoding).toBe("base64");
  expect(collected(3, euro)).toEqual({ text: "a", isCut: true });
  expect(collected(4, euro)).toEqual({ text: "a€", isCut: false });
});

test("exactly the limit is no cut, one byte more is", () => {
  expect(collected(3, "abc")).toEqual({ text: "abc", isCut: false });
  expect(collected(3, "abc", "d")).toEqual({ text: "abc", isCut: true });
  expect(collected(0, "x")).toEqual({ text: "", isCut: true });
});

describe("a split character is dropped at any of its bytes", () => {
  test.each(["é", "€", "🌍"])("%s", (character) => {
    const bytes = Buffer.from(`x${character}`);
    for (let size = 2; size < bytes.length; size++) {
      expect(withoutSplitCharacter(bytes.subarray(0, size)).toString()).toBe("x");
    }
    expect(withoutSplitCharacter(bytes)).toEqual(bytes);
  });
});

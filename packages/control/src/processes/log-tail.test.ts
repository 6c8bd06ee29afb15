import { expect, test } from "vitest";
import { LogTail, withoutCharacterRest } from "./log-tail.ts";

function tailOf(text: string | Buffer, limitBytes: number, chunkBytes: number): LogTail {
  const tail = new LogTail(limitBytes);
  const bytes = Buffer.from(text as string);
  for (let at = 0; at < bytes.length; at += chunkBytes) tail.push(bytes.subarray(at, at + chunkBytes));
  return tail;
}
const still = { isGrowing: false };

test.each([1, 2, 3, 7, 100])("the last bytes are kept from chunks of %i bytes each", (chunkBytes) => {
  const tail = tailOf("0123456789".repeat(10), 12, chunkBytes);
  expect([tail.toText(still), tail.isCut]).toEqual([{ text: "890123456789" }, true]);
});

test("a stream of exactly the limit is whole", () => {
  const tail = tailOf("x".repeat(12), 12, 5);
  expect([tail.toText(still), tail.isCut]).toEqual([{ text: "x".repeat(12) }, false]);
});

test.each([
  ["ß", 2],
  ["€", 3],
  ["😀", 4],
])("a cut inside %s begins at the next character", (character, size) => {
  const text = character.repeat(10);
  for (let limit = size; limit < size * 5; limit++) {
    const kept = Math.floor(limit / size);
    expect(tailOf(text, limit, 3).toText(still)).toEqual({ text: character.repeat(kept) });
  }
});

test("a stream that begins like the rest of a character, and was not cut, is no UTF-8", () => {
  const bytes = Buffer.from([0x82, 0xac, 0x61]);
  expect(tailOf(bytes, 10, 1).toText(still)).toEqual({ text: bytes.toString("base64"), encoding: "base64" });
});

test("a stream that grows may end inside a character, one that has ended may not", () => {
  const bytes = Buffer.from([0x61, 0xe2, 0x82]);
  const tail = tailOf(bytes, 10, 2);
  expect(tail.endsInsideCharacter).toBe(true);
  expect(tail.toText({ isGrowing: true })).toEqual({ text: "a" });
  expect(tail.toText(still)).toEqual({ text: bytes.toString("base64"), encoding: "base64" });
  expect(tailOf("a€", 10, 2).endsInsideCharacter).toBe(false);
});

test("no more than three bytes are the rest of a character", () => {
  expect([...withoutCharacterRest(Buffer.from([0x80, 0x80, 0x80, 0x80]))]).toEqual([0x80]);
  expect(withoutCharacterRest(Buffer.alloc(0)).length).toBe(0);
});

import { Readable } from "node:stream";
import { expect, test } from "vitest";
import { readAtMost } from "./read-at-most.ts";

const streamOf = (...chunks: string[]) => Readable.from(chunks.map((chunk) => Buffer.from(chunk)));

test("joins the chunks up to the limit", async () => {
  expect(String(await readAtMost(streamOf("ab", "cd"), 4))).toBe("abcd");
  expect(String(await readAtMost(streamOf(), 0))).toBe("");
});

test("stops reading beyond the limit", async () => {
  let read = 0;
  async function* endless() {
    for (;;) {
      read++;
      yield Buffer.from("ab");
    }
  }
  expect(await readAtMost(endless(), 5)).toBeUndefined();
  expect(read).toBe(3);
});

test("a stream that fails rejects with its error", async () => {
  async function* failing() {
    yield Buffer.from("ab");
    throw new Error("broken");
  }
  await expect(readAtMost(failing(), 5)).rejects.toThrow("broken");
});

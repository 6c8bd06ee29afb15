import { expect, test } from "vitest";
import { beforeDetach, parseDetachKey } from "./detach-key.ts";

const typed = (text: string) => Buffer.from(text, "latin1");

test.each([
  ["ctrl-]", "Ctrl-]", 0x1d],
  ["^a", "Ctrl-A", 0x01],
  ["C-Q", "Ctrl-Q", 0x11],
  ["ctrl-\\", "Ctrl-\\", 0x1c],
  ["ctrl-@", "Ctrl-@", 0x00],
])("%s is the key %s", (text, name, byte) => {
  const key = parseDetachKey(text);
  expect(key.name).toBe(name);
  expect(beforeDetach(key, Buffer.from([0x78, byte, 0x79]))).toEqual(typed("x"));
});

test.each(["x", "ctrl-", "ctrl-1", "alt-x", ""])("%j is no key", (text) => {
  expect(() => parseDetachKey(text)).toThrow("ctrl-]");
});

test("the key counts also where a program has asked for other reports of keys", () => {
  const key = parseDetachKey("ctrl-]");
  expect(beforeDetach(key, typed("ab\u001b[27;5;93~"))).toEqual(typed("ab"));
  expect(beforeDetach(key, typed("\u001b[93;5u"))).toEqual(typed(""));
  expect(beforeDetach(key, typed("just text"))).toBeUndefined();
});

test("without one, every key goes to the session", () => {
  expect(beforeDetach(parseDetachKey("none"), Buffer.from([0x1d]))).toBeUndefined();
});

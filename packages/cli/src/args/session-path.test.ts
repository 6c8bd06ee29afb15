import { expect, test } from "vitest";
import { absolutePath, asSessionPath, parseSessionOrPath, parseSessionPath } from "./session-path.ts";

test.each([
  ["s1:notes.txt", "s1", "notes.txt"],
  ["s1:", "s1", "/workspace"],
  ["s1:/workspace/a b", "s1", "/workspace/a b"],
  ["s1:a:b", "s1", "a:b"],
  ["s1:a\nb", "s1", "a\nb"],
])("%j is in a session", (text, session, path) => {
  expect(asSessionPath(text)).toEqual({ session, path });
  expect(parseSessionPath(text)).toEqual({ session, path });
});

test.each(["notes.txt", "./s1:notes.txt", "dir/s1:x", "/a:b", ":x", "-"])("%j is a local path", (text) => {
  expect(asSessionPath(text)).toBeUndefined();
  expect(() => parseSessionPath(text)).toThrow("expected ID:PATH");
});

test("a session alone stands for all of its files", () => {
  expect(parseSessionOrPath("s1")).toEqual({ session: "s1", path: "/workspace" });
  expect(parseSessionOrPath("s1:src")).toEqual({ session: "s1", path: "src" });
});

test("relative paths begin in /workspace", () => {
  expect(["a/b", "/workspace/a"].map(absolutePath)).toEqual(["/workspace/a/b", "/workspace/a"]);
});

import { describe, expect, test } from "vitest";
import { FilePath, isInWorkspace } from "./files.ts";

const problem = (path: string) => FilePath.safeParse(path).error?.issues[0]?.message;

describe("a path by its text alone", () => {
  test.each([
    "/workspace",
    "/workspace/",
    "//workspace/./a",
    ".",
    "a/../b",
    "/workspace/../workspace/a",
    "/etc/../workspace/a",
    "/../workspace",
    "..a",
    "ünï",
    "a b\nc",
  ])("%j lies at or under /workspace", (path) => {
    expect(problem(path)).toBeUndefined();
  });

  test.each([
    "/",
    "..",
    "/etc/passwd",
    "../etc/passwd",
    "a/../../b",
    "/workspace/../etc",
    "/workspace-evil",
    "/Workspace/a",
  ])("%j does not", (path) => {
    expect(problem(path)).toBe("path must be under /workspace");
    expect(isInWorkspace(path)).toBe(false);
  });

  test.each([
    ["", "must not be empty"],
    ["a\0b", "must not contain a NUL character"],
    ["a\ud800", "must be valid Unicode"],
    [`${"x".repeat(200)}/`.repeat(21), "must be at most 4096 bytes long"],
    ["x".repeat(256), "each part must be at most 255 bytes long"],
    ["é".repeat(128), "each part must be at most 255 bytes long"],
  ])("%j is refused", (path, message) => {
    expect(problem(path)).toBe(message);
  });

  test("a part of 255 bytes is fine, also one whose bytes are no UTF-8 and are written escaped", () => {
    expect(problem("x".repeat(255))).toBeUndefined();
    expect(problem("\\xff".repeat(255))).toBeUndefined();
    expect(problem("\\xff".repeat(256))).toBe("each part must be at most 255 bytes long");
    expect(problem("\\x41".repeat(64))).toBe("each part must be at most 255 bytes long");
  });
});

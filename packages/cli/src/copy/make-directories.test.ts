import { mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, expect, test } from "vitest";
import { makeDirectories } from "./make-directories.ts";

const room = mkdtempSync(path.join(tmpdir(), "make-directories-"));
afterAll(() => rmSync(room, { recursive: true }));

test("what is missing is made, what is there stays", async () => {
  const deep = path.join(room, "a/b/c");
  await makeDirectories(deep);
  await makeDirectories(deep);
  expect(statSync(deep).isDirectory()).toBe(true);
});

test("a place that cannot hold a directory is an error, not a wait", async () => {
  writeFileSync(path.join(room, "file"), "");
  await expect(makeDirectories(path.join(room, "file"))).rejects.toThrow("EEXIST");
  await expect(makeDirectories(path.join(room, "file/x/y"))).rejects.toThrow("ENOTDIR");
  await expect(makeDirectories("/proc/nope/x/y")).rejects.toThrow("ENOENT");
});

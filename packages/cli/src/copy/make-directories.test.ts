import { mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, expect, test } from "vitest";
import { makeDirectories } from "./make-directories.ts";

const base = mkdtempSync(path.join(tmpdir(), "make-directories-"));
afterAll(() => rmSync(base, { recursive: true }));

test("missing directories are made, present ones stay", async () => {
  const deep = path.join(base, "a/b/c");
  await makeDirectories(deep);
  await makeDirectories(deep);
  expect(statSync(deep).isDirectory()).toBe(true);
});

test("a place that cannot hold a directory is an error, not a wait", async () => {
  writeFileSync(path.join(base, "file"), "");
  await expect(makeDirectories(path.join(base, "file"))).rejects.toThrow("EEXIST");
  await expect(makeDirectories(path.join(base, "file/x/y"))).rejects.toThrow("ENOTDIR");
  await expect(makeDirectories("/proc/nope/x/y")).rejects.toThrow("ENOENT");
});

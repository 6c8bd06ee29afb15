import { mkdir, readdir, symlink, writeFile } from "node:fs/promises";
import path from "node:path";
import { expect, test } from "vitest";
import { dir, inOwnDirectories, viv } from "../../test-support/program.ts";

inOwnDirectories();

const target = () => path.join(dir, "b.tar.zst");

test.each([
  ["a directory", "is a directory", [], () => mkdir(target())],
  ["a directory, with --force", "is a directory", ["--force"], () => mkdir(target())],
  ["a link, with --force", "is no file", ["--force"], () => symlink("elsewhere", target())],
  ["a file", "exists", [], () => writeFile(target(), "")],
  ["below no directory", "there is no directory", [], () => writeFile(path.join(dir, "file"), "")],
])("a backup to what is %s is refused before anything is saved", async (what, reason, options, make) => {
  await make();
  const file = what.startsWith("below") ? path.join(dir, "file", "b.tar.zst") : target();
  const before = (await readdir(dir)).toSorted();
  const { code, err } = await viv("http://127.0.0.1:1", ["backup", ...options, "--data-dir", dir, file]);
  expect({ code, err }).toEqual({ code: 1, err: expect.stringContaining(reason) });
  expect((await readdir(dir)).toSorted()).toEqual(before);
});

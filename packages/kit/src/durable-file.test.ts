import { mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { writeDurably } from "./durable-file.ts";

it("replaces a file whole, with its mode, and leaves nothing beside it", async () => {
  const dir = await mkdtemp(path.join(tmpdir(), "durable-"));
  onTestFinished(() => rm(dir, { recursive: true }));
  const file = path.join(dir, "file");
  await writeFile(`${file}.tmp`, "half of an earlier wri", { mode: 0o644 });
  await writeDurably(file, "first", 0o600);
  await writeDurably(file, Buffer.from("second"), 0o600);
  expect(await readFile(file, "utf8")).toBe("second");
  expect((await stat(file)).mode & 0o777).toBe(0o600);
  expect(await readdir(dir)).toEqual(["file"]);
});

it("leaves the file as it was if it cannot write", async () => {
  const dir = await mkdtemp(path.join(tmpdir(), "durable-"));
  onTestFinished(() => rm(dir, { recursive: true }));
  await expect(writeDurably(path.join(dir, "absent/file"), "text", 0o600)).rejects.toThrow("ENOENT");
  expect(await readdir(dir)).toEqual([]);
});

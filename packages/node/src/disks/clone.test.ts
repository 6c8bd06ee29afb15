import { mkdtemp, open, readFile, rm, stat, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { MIB } from "@vivarium/kit/sizes";
import { afterEach, beforeEach, expect, it } from "vitest";
import { cloneFile, cloneInto, shareFile } from "./clone.ts";

let dir: string;
let elsewhere: string;
beforeEach(async () => {
  dir = await mkdtemp(path.join(tmpdir(), "clone-"));
  elsewhere = await mkdtemp("/dev/shm/clone-");
});
afterEach(async () => {
  for (const each of [dir, elsewhere]) await rm(each, { recursive: true, force: true });
});

it("shares a file within a file system: one inode under two names", async () => {
  await writeFile(path.join(dir, "a"), "content");
  await shareFile(path.join(dir, "a"), path.join(dir, "b"));
  expect((await stat(path.join(dir, "b"))).ino).toBe((await stat(path.join(dir, "a"))).ino);
});

it("copies a file to another file system with its age and its holes", async () => {
  const [source, target] = [path.join(dir, "a"), path.join(elsewhere, "b")];
  const file = await open(source, "w");
  await file.write("end", 64 * MIB);
  await file.close();
  await utimes(source, 1_600_000_000.123, 1_600_000_000.123);
  await shareFile(source, target);
  const [from, to] = [await stat(source, { bigint: true }), await stat(target, { bigint: true })];
  expect({ size: to.size, mtimeNs: to.mtimeNs }).toEqual({ size: from.size, mtimeNs: from.mtimeNs });
  expect(to.blocks * 512n).toBeLessThan(BigInt(MIB));
  expect((await readFile(target)).subarray(64 * MIB).toString()).toBe("end");
});

it("clones a file that is being written without changing the clone, and overwrites nothing", async () => {
  const [source, target] = [path.join(dir, "a"), path.join(dir, "b")];
  await writeFile(source, "old");
  await cloneFile(source, target);
  await writeFile(target, "new");
  expect(await readFile(source, "utf8")).toBe("old");
});

it("puts files into another one at their offsets, also where blocks cannot be shared", async () => {
  for (const place of [dir, elsewhere]) {
    const [source, target] = [path.join(place, "a file"), path.join(place, "the target")];
    await writeFile(source, "content".repeat(1000));
    await writeFile(target, "head");
    await cloneInto(source, target, 4096);
    await cloneInto(source, target, 16_384);
    const bytes = await readFile(target, "latin1");
    expect(bytes.slice(0, 5)).toBe("head\0");
    expect(bytes.slice(4096, 11_096)).toBe("content".repeat(1000));
    expect(bytes.slice(16_384)).toBe("content".repeat(1000));
  }
});

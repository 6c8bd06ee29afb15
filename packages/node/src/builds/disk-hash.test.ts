import { createHash } from "node:crypto";
import { mkdtemp, open, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { MIB } from "@vivarium/kit/sizes";
import { afterEach, beforeEach, expect, it } from "vitest";
import { hashDisk, hashDiskAside } from "./disk-hash.ts";

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(path.join(tmpdir(), "disk-"));
});
afterEach(() => rm(dir, { recursive: true, force: true }));

/** A disk with text at these offsets, and everything else a hole or written zeros. */
async function disk(size: number, texts: [number, string][], isSparse = true): Promise<string> {
  const file = path.join(dir, `${Math.random()}`);
  const handle = await open(file, "wx");
  if (!isSparse) await handle.write(Buffer.alloc(size), 0, size, 0);
  await handle.truncate(size);
  for (const [at, text] of texts) await handle.write(text, at);
  await handle.close();
  return file;
}

const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest();

it("is that of the content, whether zeros are holes or written", async () => {
  const texts: [number, string][] = [
    [3 * MIB - 2, "across a border"],
    [6 * MIB + 4096, "text"],
  ];
  const sparse = await hashDisk(await disk(8 * MIB, texts));
  expect(await hashDisk(await disk(8 * MIB, texts, false))).toBe(sparse);
  const content = Buffer.alloc(8 * MIB);
  for (const [at, text] of texts) content.write(text, at);
  const pieces = Array.from({ length: 8 }, (_, at) => sha256(content.subarray(at * MIB, (at + 1) * MIB)));
  expect(sparse).toBe(`sha256:${sha256(Buffer.concat(pieces)).toString("hex")}`);
});

it("changes with any byte, and with the size", async () => {
  const hashes = await Promise.all([
    disk(4 * MIB, []).then(hashDisk),
    disk(4 * MIB, [[2 * MIB, "x"]]).then(hashDisk),
    disk(4 * MIB, [[MIB, "x"]]).then(hashDisk),
    disk(4 * MIB + 512, []).then(hashDisk),
    disk(5 * MIB, []).then(hashDisk),
  ]);
  expect(new Set(hashes).size).toBe(hashes.length);
});

it("is computed on another thread, which says why it failed", async () => {
  const file = await disk(2 * MIB, [[0, "x"]]);
  expect(await hashDiskAside(file)).toBe(await hashDisk(file));
  await expect(hashDiskAside(path.join(dir, "missing"))).rejects.toThrow(/ENOENT/);
});

it("takes a disk for raw bytes, whatever format its content names", async () => {
  const file = await disk(2 * MIB, [[0, "QFI\u00fb"]]);
  expect(await hashDisk(file)).toMatch(/^sha256:[0-9a-f]{64}$/);
});

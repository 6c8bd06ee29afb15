import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { crc32 } from "node:zlib";
import { afterEach, beforeEach, expect, it } from "vitest";
import { crcOfFile, damageOfMemory } from "./checks.ts";
import { PAGE_BYTES, sumMemory } from "./page-sums.ts";

const MIB = 1024 * 1024;

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(path.join(tmpdir(), "checks-"));
});
afterEach(() => rm(dir, { recursive: true, force: true }));

const write = async (name: string, bytes: Uint8Array) => {
  const file = path.join(dir, name);
  await writeFile(file, bytes);
  return file;
};

it.each([0, 1, MIB - 1, MIB, MIB + 1, 2 * MIB, 5 * MIB + 7])(
  "a file of %i bytes has its sum",
  async (size) => {
    const bytes = Buffer.from(Array.from({ length: 4096 }, (_, n) => (n * n) % 251));
    const content = Buffer.alloc(size, bytes);
    expect(await crcOfFile(await write("file", content))).toBe(crc32(content));
  },
);

it("pages that are not what their table says are told, and tables that are none", async () => {
  const content = Buffer.alloc(5 * PAGE_BYTES, 7);
  const memory = await write("memory", content);
  const sums = await write("sums", (await sumMemory(memory, content.length)).toBytes());
  const check = { memory, sums, scope: "all" } as const;
  expect(await damageOfMemory(check)).toBeUndefined();
  content[3 * PAGE_BYTES] = 8;
  await write("memory", content);
  expect(await damageOfMemory(check)).toBe("page 3 of the memory is damaged");
  await write("sums", Buffer.alloc(3));
  expect(await damageOfMemory(check)).toContain("has a wrong length");
});

it("what cannot be read is no damage", async () => {
  const gone = path.join(dir, "gone");
  await expect(crcOfFile(gone)).rejects.toMatchObject({ code: "ENOENT" });
  await expect(crcOfFile(dir)).rejects.toMatchObject({ code: "EISDIR" });
  const check = { memory: gone, sums: gone, scope: "own" } as const;
  await expect(damageOfMemory(check)).rejects.toMatchObject({ code: "ENOENT" });
});

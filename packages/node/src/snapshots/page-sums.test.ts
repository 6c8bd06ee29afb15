import { mkdtemp, open, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { crc32 } from "node:zlib";
import { afterEach, beforeEach, expect, it } from "vitest";
import { PAGE_BYTES, PageSums, sumMemory, verifyMemory, ZERO_SUM } from "./page-sums.ts";

let dir: string;
let memory: string;
beforeEach(async () => {
  dir = await mkdtemp(path.join(tmpdir(), "page-sums-"));
  memory = path.join(dir, "mem");
});
afterEach(() => rm(dir, { recursive: true, force: true }));

/** More than one read of a megabyte, and no multiple of eight pages. */
const PAGES = 2 * 256 + 3;
const page = (fill: number) => Buffer.alloc(PAGE_BYTES, fill);

/** Pages 1, 300 and the last have content; the others are holes. */
async function writeMemory(): Promise<PageSums> {
  const file = await open(memory, "w");
  for (const n of [1, 300, PAGES - 1]) await file.write(page(n), 0, PAGE_BYTES, n * PAGE_BYTES);
  await file.truncate(PAGES * PAGE_BYTES);
  await file.close();
  return await sumMemory(memory, PAGES * PAGE_BYTES);
}

async function damage(n: number): Promise<void> {
  await putByte(n, 0xee);
}

async function putByte(n: number, byte: number): Promise<void> {
  const file = await open(memory, "r+");
  await file.write(Buffer.from([byte]), 0, 1, n * PAGE_BYTES + 17);
  await file.close();
}

it("sums every page; pages that are not empty are its own", async () => {
  const table = await writeMemory();
  expect(table.sums.length).toBe(PAGES);
  expect(table.sums[1]).toBe(crc32(page(1)));
  expect(table.sums[0]).toBe(ZERO_SUM);
  const own = Array.from({ length: PAGES }, (_, n) => n).filter((n) => table.isOwn(n));
  expect(own).toEqual([1, 300, PAGES - 1]);
});

it.each([1, 7, 8, 9, 33, PAGES])("is read back as it was written, with %i pages", async (pages) => {
  const table = new PageSums(Uint32Array.from({ length: pages }, (_, n) => n * 7919));
  table.set(pages - 1, 0xffff_ffff);
  await writeFile(path.join(dir, "sums"), table.toBytes());
  const read = await PageSums.read(path.join(dir, "sums"));
  expect(read.sums).toEqual(table.sums);
  expect(read.toBytes().equals(table.toBytes())).toBe(true);
  expect(read.isOwn(pages - 1)).toBe(true);
  expect(pages > 1 && read.isOwn(pages - 2)).toBe(false);
});

it("is refused if its file has an impossible length", async () => {
  const bytes = (await writeMemory()).toBytes();
  await writeFile(path.join(dir, "sums"), bytes.subarray(1));
  await expect(PageSums.read(path.join(dir, "sums"))).rejects.toThrow("wrong length");
});

it("accepts unchanged memory", async () => {
  const table = await writeMemory();
  await verifyMemory(memory, table, "all");
  await verifyMemory(memory, table, "own");
});

it.each([
  ["its own", 300],
  ["the last", PAGES - 1],
])("finds damage of %s page in either scope", async (_, n) => {
  const table = await writeMemory();
  await damage(n);
  await expect(verifyMemory(memory, table, "all")).rejects.toThrow(`page ${n} of the memory is damaged`);
  await expect(verifyMemory(memory, table, "own")).rejects.toThrow(`page ${n} of the memory is damaged`);
});

it("finds damage of an empty page when it checks all pages", async () => {
  const table = await writeMemory();
  await damage(255);
  await verifyMemory(memory, table, "own");
  await expect(verifyMemory(memory, table, "all")).rejects.toThrow("page 255 of the memory is damaged");
});

it("finds damage of each of its own pages, and none of those between them", async () => {
  const sums = (await writeMemory()).child(true);
  const own = [10, 12, 40, 41, 290];
  for (const n of own) sums.set(n, sums.sums[n] as number);
  for (const n of [11, 25, 255]) await damage(n);
  await verifyMemory(memory, sums, "own");
  for (const n of own) {
    await damage(n);
    await expect(verifyMemory(memory, sums, "own")).rejects.toThrow(`page ${n} of the memory is damaged`);
    await putByte(n, 0);
  }
});

it("finds that the memory is cut short", async () => {
  const table = await writeMemory();
  await truncate(memory, PAGES * PAGE_BYTES - 1);
  await expect(verifyMemory(memory, table, "own")).rejects.toThrow("cut short");
});

it("starts a child without own pages below a baseline, and with its parent's below a snapshot", async () => {
  const table = await writeMemory();
  const ofBaseline = table.child(true);
  const ofSnapshot = table.child(false);
  expect([ofBaseline.isOwn(300), ofSnapshot.isOwn(300)]).toEqual([false, true]);
  ofBaseline.set(5, 1);
  ofSnapshot.set(5, 1);
  expect([table.isOwn(5), table.sums[5]]).toEqual([false, ZERO_SUM]);
});

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, readSync } from "node:fs";
import { copyFile, mkdtemp, readFile, rm, stat, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { createLog } from "@vivarium/kit/log";
import { afterEach, beforeEach, expect, it, onTestFinished } from "vitest";
import { changedRuns, mappingsOf, unpackRuns } from "./changed-pages.ts";
import { writeChangedPages } from "./memory.ts";
import { PAGE_BYTES, PageSums, sumMemory, verifyMemory } from "./page-sums.ts";
import { SumsThread } from "./sums-thread.ts";

const PAGES = 32;
/** Memory is copied in chunks of 256 KiB. */
const CHUNK_PAGES = 64;
/** The page map is read a megabyte at a time, at eight bytes a page. */
const SEAM = 131_072;
/** Maps a file privately, reads page 3, writes the given pages, reports that and waits. */
const MAPPER = `
import mmap, sys
name, *writes = sys.argv[1:]
with open(name, "rb") as file:
    memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
memory[3 * 4096]
for write in writes:
    page, byte = map(int, write.split(":"))
    memory[page * 4096] = byte
print("mapped", flush=True)
sys.stdin.read()
`;

let dir: string;
let file: string;
let mapper: ChildProcess | undefined;
beforeEach(async () => {
  dir = await mkdtemp(path.join(tmpdir(), "changed-pages-"));
  file = path.join(dir, "mem");
  const content = Buffer.alloc(PAGES * PAGE_BYTES);
  content.fill(7, 10 * PAGE_BYTES, 20 * PAGE_BYTES);
  await writeFile(file, content);
});
afterEach(async () => {
  mapper?.kill("SIGKILL");
  await rm(dir, { recursive: true, force: true });
});

/** Starts a process that has written `byte` to the first byte of each page. */
async function mapped(writes: { page: number; byte: number }[]): Promise<number> {
  const words = writes.map(({ page, byte }) => `${page}:${byte}`);
  mapper = spawn("python3", ["-c", MAPPER, file, ...words], { stdio: ["pipe", "pipe", "inherit"] });
  await once(mapper.stdout as NodeJS.ReadableStream, "data");
  return mapper.pid as number;
}

async function runsOf(pid: number) {
  return changedRuns(pid, mappingsOf(pid, await stat(file, { bigint: true })));
}

it("finds the pages that were written, in runs, and no page that was only read", async () => {
  await truncate(file, (SEAM + 5) * PAGE_BYTES);
  const pages = [0, 11, 12, 13, SEAM - 1, SEAM, SEAM + 4];
  const pid = await mapped(pages.map((page) => ({ page, byte: 1 })));
  const runs = (await runsOf(pid)).map(({ fileOffset, bytes }) => [
    fileOffset / PAGE_BYTES,
    bytes / PAGE_BYTES,
  ]);
  expect(runs).toEqual([
    [0, 1],
    [11, 3],
    [SEAM - 1, 2],
    [SEAM + 4, 1],
  ]);
});

it("finds nothing in a process that only reads", async () => {
  expect(await runsOf(await mapped([]))).toEqual([]);
});

it("refuses a process that does not map the file, or not all of it", async () => {
  const pid = await mapped([]);
  const { ino, size } = await stat(file, { bigint: true });
  expect(() => mappingsOf(pid, { ino: ino + 1_000_000n, size })).toThrow("as a whole");
  expect(() => mappingsOf(pid, { ino, size: size + 4096n })).toThrow("as a whole");
});

it("copies the memory of the process, and marks the child's own pages in the table", async () => {
  const before = await sumMemory(file, PAGES * PAGE_BYTES);
  // The last write does not change its page, so it stays shared with the parent.
  const pid = await mapped([
    { page: 0, byte: 9 },
    { page: 12, byte: 9 },
    { page: 15, byte: 7 },
  ]);
  const target = path.join(dir, "child");
  await copyFile(file, target);
  const sums = before.child(true);
  const written = await writeChangedPages(
    { pid, runs: await runsOf(pid), parent: file },
    { file: target, sums },
  );
  expect(written).toBe(2 * PAGE_BYTES);
  expect([0, 12, 15, 10].map((page) => sums.isOwn(page))).toEqual([true, true, false, false]);
  await verifyMemory(target, sums, "all");
  expect([0, 12, 15].map((page) => byteAt(target, page))).toEqual([9, 9, 7]);
  expect(await readFile(file).then((content) => content[0])).toBe(0);
});

it("finds and writes the same on another thread", async () => {
  const before = await sumMemory(file, PAGES * PAGE_BYTES);
  const pid = await mapped([0, 12, 14, 15].map((page) => ({ page, byte: page === 15 ? 7 : 9 })));
  const [here, there] = [path.join(dir, "here"), path.join(dir, "there")];
  for (const target of [here, there]) await copyFile(file, target);
  const sums = before.child(true);
  const runs = await runsOf(pid);
  const written = await writeChangedPages({ pid, runs, parent: file }, { file: here, sums });
  const thread = new SumsThread({ log: createLog("test", "silent") });
  onTestFinished(() => thread.close());
  const found = await thread.findChanged(pid, mappingsOf(pid, await stat(file, { bigint: true })));
  expect([[...unpackRuns(found.runs)], found.bytes]).toEqual([runs, 4 * PAGE_BYTES]);
  const table = before.child(true);
  const made = await thread.writeChanged(
    { pid, runs: found.runs, parent: file },
    { file: there, sums: table },
  );
  expect([made.written, made.sums.toBytes()]).toEqual([written, sums.toBytes()]);
  expect(await readFile(there)).toEqual(await readFile(here));
});

it("yields to other work on its thread after ten milliseconds of writing, and not before", async () => {
  const pages = 16 * CHUNK_PAGES;
  await truncate(file, pages * PAGE_BYTES);
  const pid = await mapped(Array.from({ length: pages }, (_, page) => ({ page, byte: 9 })));
  const target = path.join(dir, "child");
  await copyFile(file, target);
  const source = { pid, runs: await runsOf(pid), parent: file };
  const turnsWhen = async (msPerLook: number) => {
    let time = 0;
    const now = () => {
      time += msPerLook;
      return time;
    };
    const sums = new PageSums(new Uint32Array(pages));
    return await turnsOf(writeChangedPages(source, { file: target, sums }, now));
  };
  expect(await turnsWhen(0)).toBe(0);
  expect(await turnsWhen(4)).toBeGreaterThanOrEqual(4);
});

/** How often the event loop ran meanwhile. */
async function turnsOf(work: Promise<unknown>): Promise<number> {
  let rounds = 0;
  let isOver = false;
  const goRound = () => {
    rounds += 1;
    if (!isOver) setImmediate(goRound);
  };
  setImmediate(goRound);
  await work.finally(() => {
    isOver = true;
  });
  return rounds;
}

it("compares a page whose sum is equal by chance", async () => {
  const sums = new PageSums(new Uint32Array(PAGES));
  const pid = await mapped([{ page: 12, byte: 9 }]);
  const target = path.join(dir, "child");
  await copyFile(file, target);
  const runs = await runsOf(pid);
  await writeChangedPages({ pid, runs, parent: file }, { file: target, sums });
  const lucky = new PageSums(sums.sums.slice());
  const second = path.join(dir, "second");
  await copyFile(file, second);
  await writeChangedPages({ pid, runs, parent: file }, { file: second, sums: lucky });
  expect([byteAt(second, 12), lucky.isOwn(12)]).toEqual([9, true]);
});

function byteAt(name: string, page: number): number | undefined {
  const fd = openSync(name, "r");
  const byte = Buffer.alloc(1);
  readSync(fd, byte, 0, 1, page * PAGE_BYTES);
  closeSync(fd);
  return byte[0];
}

import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, readFile, rm, stat, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { text } from "node:stream/consumers";
import { createLog } from "@vivarium/kit/log";
import { afterEach, beforeEach, expect, it, onTestFinished } from "vitest";
import { changedRuns, mappingsOf } from "./changed-pages.ts";
import { PAGE_BYTES, UnusableSnapshot } from "./page-sums.ts";
import { loadSealedPages, writeSealedPages } from "./sealed-memory.ts";
import { SumsThread } from "./sums-thread.ts";

const PAGES = 1024;
const sealing = { key: randomBytes(32), label: "pau_1" };
/** Maps a file privately, writes the given pages, reports that, waits, and prints the first bytes of each page. */
const MAPPER = `
import mmap, sys
name, *writes = sys.argv[1:]
with open(name, "rb") as file:
    memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
for write in writes:
    page, word = write.split(":")
    memory[int(page) * 4096 : int(page) * 4096 + len(word)] = word.encode()
print("mapped", end="", flush=True)
sys.stdin.read()
for page in range(len(memory) // 4096):
    sys.stdout.buffer.write(memory[page * 4096 : page * 4096 + 8])
`;

let dir: string;
let below: string;
let sealed: string;
const children: ChildProcess[] = [];
beforeEach(async () => {
  dir = await mkdtemp(path.join(tmpdir(), "sealed-memory-"));
  below = path.join(dir, "mem");
  sealed = path.join(dir, "mem.sealed");
  await writeFile(below, Buffer.alloc(PAGES * PAGE_BYTES, "below"));
});
afterEach(async () => {
  for (const child of children.splice(0)) child.kill("SIGKILL");
  await rm(dir, { recursive: true, force: true });
});

async function mapped(writes: Record<number, string> = {}) {
  const words = Object.entries(writes).map(([page, word]) => `${page}:${word}`);
  const child = spawn("python3", ["-c", MAPPER, below, ...words], { stdio: ["pipe", "pipe", "inherit"] });
  children.push(child);
  await once(child.stdout, "data");
  const pid = child.pid as number;
  const mappings = mappingsOf(pid, await stat(below, { bigint: true }));
  const contents = async () => {
    child.stdin.end();
    const all = await text(child.stdout);
    return Array.from({ length: all.length / 8 }, (_, page) => all.slice(page * 8, page * 8 + 8));
  };
  return { pid, mappings, contents };
}

async function save(writes: Record<number, string>) {
  const { pid, mappings } = await mapped(writes);
  return await writeSealedPages(
    { pid, runs: changedRuns(pid, mappings), parent: below },
    { file: sealed, ...sealing },
  );
}

/** The first bytes of a page of the file. */
const wordBelow = async (page: number) =>
  (await readFile(below)).toString("latin1", page * PAGE_BYTES, page * PAGE_BYTES + 8);

it("brings the pages of one process into another, as pages of that process alone", async () => {
  const writes = { 0: "canary00", 7: "canary07", 8: "canary08", 600: "canary60", 1023: "canary99" };
  expect(await save(writes)).toEqual({ written: 5 * PAGE_BYTES, fileBytes: (await stat(sealed)).size });
  const before = await readFile(below);
  const other = await mapped();
  await loadSealedPages({ file: sealed, ...sealing }, other);
  const runs = changedRuns(other.pid, other.mappings);
  expect(runs.map(({ fileOffset, bytes }) => [fileOffset / PAGE_BYTES, bytes / PAGE_BYTES])).toEqual([
    ...[
      [0, 1],
      [7, 2],
      [600, 1],
      [1023, 1],
    ],
  ]);
  const contents = await other.contents();
  expect(contents).toHaveLength(PAGES);
  for (const [page, word] of Object.entries(writes)) expect(contents[Number(page)]).toBe(word);
  expect(contents[9]).toBe(await wordBelow(9));
  for (const name of [sealed, below]) expect((await readFile(name)).includes("canary")).toBe(false);
  expect((await readFile(below)).equals(before)).toBe(true);
});

it("leaves out pages that were written with what they had", async () => {
  expect(await save({ 3: await wordBelow(3), 4: "other" })).toMatchObject({ written: PAGE_BYTES });
});

it("keeps pages in any number of segments", async () => {
  const writes = Object.fromEntries(Array.from({ length: 300 }, (_, i) => [i * 3, `page${i}`]));
  expect(await save(writes)).toMatchObject({ written: 300 * PAGE_BYTES });
  const other = await mapped();
  await loadSealedPages({ file: sealed, ...sealing }, other);
  const contents = await other.contents();
  for (const [page, word] of Object.entries(writes)) expect(contents[Number(page)]).toContain(word);
});

it("saves again what was loaded, although the process itself wrote nothing", async () => {
  await save({ 5: "canary05" });
  const other = await mapped({ 6: "canary06" });
  await loadSealedPages({ file: sealed, ...sealing }, other);
  const again = path.join(dir, "again");
  const source = { pid: other.pid, runs: changedRuns(other.pid, other.mappings), parent: below };
  expect(await writeSealedPages(source, { file: again, ...sealing })).toMatchObject({
    written: 2 * PAGE_BYTES,
  });
});

it("writes nothing of a damaged segment", async () => {
  await save({ 5: "canary05" });
  const bytes = await readFile(sealed);
  bytes.writeUInt8(bytes.readUInt8(100) ^ 1, 100);
  await writeFile(sealed, bytes);
  const other = await mapped();
  await expect(loadSealedPages({ file: sealed, ...sealing }, other)).rejects.toThrow(UnusableSnapshot);
  expect(changedRuns(other.pid, other.mappings)).toEqual([]);
});

it("is refused by a machine with less memory", async () => {
  await save({ 1023: "canary99" });
  await truncate(below, (PAGES / 2) * PAGE_BYTES);
  const small = await mapped();
  await expect(loadSealedPages({ file: sealed, ...sealing }, small)).rejects.toThrow(/larger/);
});

it("is done on the other thread as well", async () => {
  const thread = new SumsThread({ log: createLog("test") });
  onTestFinished(() => thread.close());
  const { pid, mappings } = await mapped({ 5: "canary05" });
  const { runs } = await thread.findChanged(pid, mappings);
  const target = { file: sealed, ...sealing };
  expect(await thread.writeSealed({ pid, runs, parent: below }, target)).toMatchObject({
    written: PAGE_BYTES,
  });
  const other = await mapped();
  await thread.loadSealed(target, other.pid, other.mappings);
  const wrong = { ...target, key: randomBytes(32) };
  await expect(thread.loadSealed(wrong, other.pid, other.mappings)).rejects.toThrow(UnusableSnapshot);
  expect((await other.contents())[5]).toBe("canary05");
});

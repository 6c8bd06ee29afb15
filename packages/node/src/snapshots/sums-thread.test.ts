import { mkdtemp, open, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { Worker } from "node:worker_threads";
import { createLog } from "@vivarium/kit/log";
import { afterAll, afterEach, beforeEach, expect, test, vi } from "vitest";
import { makeLoadable, QEMU } from "../../test-support/loadable.ts";
import { crcOfFile } from "./file-crc.ts";
import { verifyLoadable } from "./manifest.ts";
import { PAGE_BYTES, sumMemory, UnusableSnapshot, verifyMemory } from "./page-sums.ts";
import { SumsThread } from "./sums-thread.ts";

const PAGES = 600;
const log = createLog("test", "silent");

/** How often this thread has summed. Another thread has its own copy of the module. */
const here = vi.hoisted(() => ({ sums: 0 }));
// Other files of tests share modules of this process, without what is put in their place here.
vi.hoisted(() => vi.resetModules());
afterAll(() => void vi.resetModules());
vi.mock("node:zlib", async (original) => {
  const zlib = await original<typeof import("node:zlib")>();
  const crc32: typeof zlib.crc32 = (...input) => {
    here.sums++;
    return zlib.crc32(...input);
  };
  return { ...zlib, crc32 };
});

let dir: string;
let memory: string;
let sums: string;
let threads: SumsThread[];
beforeEach(async () => {
  dir = await mkdtemp(path.join(tmpdir(), "sums-thread-"));
  memory = path.join(dir, "mem");
  sums = path.join(dir, "mem.sums");
  await writeFile(memory, Buffer.alloc(PAGES * PAGE_BYTES, 7));
  await writeFile(sums, (await sumMemory(memory, PAGES * PAGE_BYTES)).toBytes());
  threads = [];
  here.sums = 0;
});
afterEach(async () => {
  for (const thread of threads) await thread.close();
  await rm(dir, { recursive: true, force: true });
});

/** Each new thread runs the next program; the last one is the real one. */
function startThread(...programs: string[]): SumsThread {
  const start = () => {
    const program = programs.shift();
    return program === undefined
      ? new Worker(new URL("./sums-worker.ts", import.meta.url))
      : new Worker(program, { eval: true, resourceLimits: { maxOldGenerationSizeMb: 16 } });
  };
  const thread = new SumsThread({ log, start });
  threads.push(thread);
  return thread;
}

const verify = (thread: SumsThread) => thread.verifyMemory(memory, sums, "all");

async function damage(): Promise<void> {
  const file = await open(memory, "r+");
  await file.write(Buffer.from([0xee]), 0, 1, 300 * PAGE_BYTES + 17);
  await file.close();
}

test("memory and files are summed by another thread, with the same result", async () => {
  const thread = new SumsThread({ log });
  threads.push(thread);
  await verify(thread);
  const crc = await thread.crcOfFile(memory);
  expect(here.sums).toBe(0);
  await verifyMemory(memory, await sumMemory(memory, PAGES * PAGE_BYTES), "all");
  expect(await crcOfFile(memory)).toBe(crc);
  expect(here.sums).toBeGreaterThanOrEqual(2 * PAGES);
});

test("a machine to be loaded is verified by another thread", async () => {
  const loadable = await makeLoadable(path.join(dir, "saved"));
  here.sums = 0;
  await verifyLoadable({ qemu: QEMU, sums: startThread() }, loadable);
  expect(here.sums).toBe(0);
});

test("damage and unreadable files are distinguished as without the thread", async () => {
  const thread = startThread();
  await damage();
  const failed = verify(thread);
  await expect(failed).rejects.toThrow("page 300 of the memory is damaged");
  await expect(failed).rejects.toBeInstanceOf(UnusableSnapshot);
  await rm(memory);
  const missing = verify(thread);
  await expect(missing).rejects.toMatchObject({ code: "ENOENT" });
  await expect(missing).rejects.not.toBeInstanceOf(UnusableSnapshot);
});

const TAKES_ONE = "require('node:worker_threads').parentPort.once('message', () => ";

test.each([
  ["throws", `${TAKES_ONE}{ throw new Error("broken") })`],
  ["ends", `${TAKES_ONE}process.exit(3))`],
  [
    "has no memory left",
    `${TAKES_ONE}{ const all = []; for (;;) all.push(Array.from({ length: 1000 }, () => ({}))) })`,
  ],
  ["ends before it was asked", "process.exit(3)"],
  ["cannot begin", "require('./nowhere')"],
])("a thread that %s fails its pending jobs, and the next job gets a new thread", async (_how, program) => {
  const thread = startThread(program);
  const jobs = [verify(thread), verify(thread), thread.crcOfFile(memory)];
  for (const job of await Promise.allSettled(jobs))
    expect(job).toMatchObject({ status: "rejected", reason: { message: expect.stringContaining("died") } });
  await verify(thread);
});

test("a job of a closed thread fails, and so does the next one", async () => {
  const thread = startThread("setInterval(() => {}, 1000)");
  const job = verify(thread);
  job.catch(() => {});
  await thread.close();
  await expect(job).rejects.toThrow("died");
  await expect(verify(thread)).rejects.toThrow("closed");
});

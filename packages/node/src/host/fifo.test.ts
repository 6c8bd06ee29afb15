import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { KIB } from "@vivarium/kit/sizes";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterEach, beforeEach, expect, it } from "vitest";
import { abandonFifo, feedDuring, feedOnce, gatherDuring, makeFifo } from "./fifo.ts";

const runShell = promisify(execFile);
const LIMIT_BYTES = 1024 * KIB;

let dir: string;
let fifo: string;
beforeEach(async () => {
  dir = await mkdtemp(path.join(tmpdir(), "fifo-"));
  fifo = path.join(dir, "fifo");
  await makeFifo(fifo, 0);
});
afterEach(() => rm(dir, { recursive: true, force: true }));

const shell = (script: string) => runShell("sh", ["-c", script], { cwd: dir });
const alive = () => true;

it("can be opened by its user alone", async () => {
  expect((await stat(fifo)).mode & 0o777).toBe(0o600);
});

it("gives a text once to the process that reads it as a file, and is gone then", async () => {
  const read = shell("sleep 0.05; cat fifo");
  await feedOnce(fifo, "key", { limitMs: 5_000 * SLOWNESS, alive });
  expect((await read).stdout).toBe("key");
  expect(existsSync(fifo)).toBe(false);
});

it.each([
  ["does not read it", alive, /within 20 ms/],
  ["has ended", () => false, /ended/],
])("is gone, too, if the process %s", async (_title, isAlive, reason) => {
  await expect(feedOnce(fifo, "key", { limitMs: 20, alive: isAlive })).rejects.toThrow(reason);
  expect(existsSync(fifo)).toBe(false);
});

it.each([10, 64 * KIB, 300 * KIB])("gives %i bytes while the work reads them", async (bytes) => {
  const content = randomBytes(bytes);
  const work = async () => await shell("cat fifo > copy; echo done");
  expect((await feedDuring(fifo, content, work)).stdout).toBe("done\n");
  expect((await readFile(path.join(dir, "copy"))).equals(content)).toBe(true);
});

it("gives the end of a file after the last byte, which readers may wait for", async () => {
  expect((await feedDuring(fifo, Buffer.from("state"), () => shell("sleep 0.05; cat fifo"))).stdout).toBe(
    "state",
  );
});

it("does not mind a reader that leaves before the end", async () => {
  const work = async () => await shell("head -c 1 fifo");
  expect((await feedDuring(fifo, randomBytes(300 * KIB), work)).stdout).toHaveLength(1);
});

it("stops to give when the work fails without having read", async () => {
  const work = () => Promise.reject(new Error("no work"));
  await expect(feedDuring(fifo, randomBytes(300 * KIB), work)).rejects.toThrow("no work");
});

it.each([0, 10, 300 * KIB])("gathers %i bytes that the work writes", async (bytes) => {
  const work = () => shell(`head -c ${bytes} /dev/zero > fifo`);
  expect((await gatherDuring(fifo, LIMIT_BYTES, work)).equals(Buffer.alloc(bytes))).toBe(true);
});

it("gathers no more than the limit, from a process that never ends", async () => {
  const work = () => shell("cat /dev/zero > fifo");
  await expect(gatherDuring(fifo, LIMIT_BYTES, work)).rejects.toThrow(/more than/);
});

it("fails when the work does", async () => {
  await expect(gatherDuring(fifo, LIMIT_BYTES, () => shell("echo x > fifo; exit 3"))).rejects.toThrow();
});

it("is removed when the transfer is over, or was abandoned, and nothing waits for its other end any more", async () => {
  await gatherDuring(fifo, LIMIT_BYTES, () => shell("echo x > fifo"));
  expect(existsSync(fifo)).toBe(false);
  await makeFifo(fifo, 0);
  const waits = shell("echo x > fifo || true; echo over");
  await new Promise((resolve) => setTimeout(resolve, 100));
  abandonFifo(fifo);
  expect(existsSync(fifo)).toBe(false);
  await waits.catch(() => {});
  // No FIFO, and a file in its place, are left as they are.
  abandonFifo(fifo);
  await shell("echo x > fifo");
  abandonFifo(fifo);
  expect(existsSync(fifo)).toBe(true);
});

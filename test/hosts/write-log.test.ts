import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, open, readFile, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, test } from "vitest";
import { readLog, replay, unsafeEnds } from "./write-log.ts";

const MIB = 1024 * 1024;
const SECTOR = 512;

/** Runs commands of qemu-io on a disk of 4 MiB behind `blklogwrites`, and returns the log and a disk as it was before. */
async function logged(...commands: string[]): Promise<{ log: string; disk: string }> {
  const folder = await mkdtemp(path.join(tmpdir(), "write-log-"));
  const at = (name: string) => path.join(folder, name);
  for (const name of ["target", "disk"]) {
    await writeFile(at(name), "");
    await truncate(at(name), 4 * MIB);
  }
  await writeFile(at("log"), "");
  const node = { driver: "file", filename: at("target") };
  const options = { driver: "blklogwrites", file: node, log: { driver: "file", filename: at("log") } };
  execFileSync("qemu-io", [
    "-t",
    "writeback",
    ...commands.flatMap((line) => ["-c", line]),
    `json:${JSON.stringify(options)}`,
  ]);
  expect(existsSync(at("log"))).toBe(true);
  return { log: at("log"), disk: at("disk") };
}

const byteAt = async (disk: string, offset: number) => (await readFile(disk))[offset];

/** Cuts the log before its last flush, which qemu-io adds when it closes the disk. */
async function cutBeforeLastFlush(log: string): Promise<void> {
  const file = await open(log, "r+");
  let end = 0;
  for await (const { kind, dataAt } of readLog(file)) if (kind === "flush") end = dataAt;
  // The header of an entry has a sector of its own.
  await file.truncate(end - SECTOR);
  await file.close();
}

const UNSURE = ["write -P 7 0 64k", "write -P 8 1M 4k", "flush", "write -P 9 2M 4k", "write -P 9 1M 4k"];

test("what was flushed is on the disk after a power cut, and nothing of what came later if nothing survived", async () => {
  const { log, disk } = await logged(...UNSURE);
  await cutBeforeLastFlush(log);
  expect(await replay(log, disk, () => false)).toEqual({ writes: 4, lost: 2 });
  expect([await byteAt(disk, 0), await byteAt(disk, MIB), await byteAt(disk, 2 * MIB)]).toEqual([7, 8, 0]);
});

test("of the writes after the last flush, any may be on the disk", async () => {
  const { log, disk } = await logged(...UNSURE);
  await cutBeforeLastFlush(log);
  const outcomes = [false, true];
  expect(await replay(log, disk, () => outcomes.shift() ?? false)).toEqual({ writes: 4, lost: 1 });
  expect([await byteAt(disk, MIB), await byteAt(disk, 2 * MIB)]).toEqual([9, 0]);
});

test("with the last flush, all of them are", async () => {
  const { log, disk } = await logged(...UNSURE);
  expect(await replay(log, disk, () => false)).toEqual({ writes: 4, lost: 0 });
  expect([await byteAt(disk, MIB), await byteAt(disk, 2 * MIB)]).toEqual([9, 9]);
});

test("a log that is cut off within an entry counts up to there", async () => {
  const { log, disk } = await logged("write -P 7 0 64k", "flush", "write -P 8 1M 64k");
  await truncate(log, SECTOR * (1 + 1 + 128 + 1 + 1 + 5));
  expect(await replay(log, disk, () => true)).toEqual({ writes: 1, lost: 0 });
});

test("a cut can lose writes from the first one after a flush until the next flush", async () => {
  const { log, disk } = await logged(...UNSURE);
  const [first = 0, second = 0, ...after] = await unsafeEnds(log, 0);
  expect(after).toHaveLength(2);
  expect(await unsafeEnds(log, second)).toEqual(after);
  await truncate(log, first);
  expect(await replay(log, disk, () => false)).toEqual({ writes: 1, lost: 1 });
});

test("another file is refused", async () => {
  const { log, disk } = await logged("write -P 7 0 64k");
  await writeFile(log, Buffer.alloc(8192, 1));
  await expect(replay(log, disk, () => true)).rejects.toThrow("no log of writes");
});

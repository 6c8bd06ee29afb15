import { spawn } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { identify } from "@vivarium/kit/process-identity";
import { afterEach, beforeEach, expect, test } from "vitest";
import { findHolder, findService, takeForCommand, takeLock, takeUnserved } from "./lock.ts";

let dir: string;
let file: string;
beforeEach(async () => {
  dir = await mkdtemp(path.join(tmpdir(), "viv-lock-"));
  file = path.join(dir, "supervisor.lock");
});
afterEach(() => rm(dir, { recursive: true, force: true }));

const url = "http://127.0.0.1:1";

test("is taken once, names its holder and leaves nothing behind", async () => {
  const lock = await takeLock(file, url);
  expect(JSON.parse(await readFile(file, "utf8"))).toMatchObject({ startTicks: expect.any(Number) });
  expect(await takeLock(file, "http://other")).toEqual({
    holder: expect.objectContaining({ pid: process.pid, url }),
  });
  if ("release" in lock) await lock.release();
  expect(await findHolder(file)).toBeUndefined();
  expect(await readdir(dir)).toEqual([]);
});

test("a command that has it is named, and is no service", async () => {
  await takeForCommand(file, "viv backup");
  expect(await findHolder(file)).toMatchObject({ pid: process.pid, command: "viv backup" });
  expect(await findService(file)).toBeUndefined();
  expect(await takeLock(file, url)).toMatchObject({ holder: { command: "viv backup" } });
  const unserved = takeUnserved({ lockFile: file, dataDir: dir }, "viv restore-backup");
  await expect(unserved).rejects.toThrow(`viv backup (pid ${process.pid}) is at work on ${dir}`);
});

test("a service that has it is no command, and is named to a command", async () => {
  await takeLock(file, url);
  expect(await findService(file)).toMatchObject({ pid: process.pid, url });
  expect(await findService(file)).not.toHaveProperty("command");
  const unserved = takeUnserved({ lockFile: file, dataDir: dir }, "viv restore-backup");
  await expect(unserved).rejects.toThrow(`a service (pid ${process.pid}) serves ${dir} at ${url}`);
});

test("a command of an earlier version is recognised by its name, which is no address", async () => {
  await writeFile(file, JSON.stringify({ ...identify(process.pid), url: "viv backup", pauses: true }));
  expect(await findHolder(file)).toMatchObject({ command: "viv backup" });
});

test("is taken over from a process that no longer lives", async () => {
  const child = spawn("sleep", ["60"]);
  const identity = identify(child.pid ?? 0);
  await writeFile(file, JSON.stringify({ ...identity, url }));
  expect(await findHolder(file)).toMatchObject({ pid: child.pid });
  child.kill("SIGKILL");
  await new Promise((resolve) => child.on("exit", resolve));
  expect(await findHolder(file)).toBeUndefined();
  expect(await takeLock(file, url)).toHaveProperty("release");
});

test.each([
  ["an earlier process with the same pid", { pid: process.pid, startTicks: 1 }],
  ["an earlier boot", { ...identify(process.pid), bootId: "00000000-0000-0000-0000-000000000000" }],
])("is taken over from %s", async (_title, identity) => {
  await writeFile(file, JSON.stringify({ bootId: identify(process.pid)?.bootId, ...identity, url }));
  expect(await takeLock(file, url)).toHaveProperty("release");
});

test("is taken over when its file is damaged", async () => {
  await writeFile(file, '{"pid":');
  expect(await takeLock(file, url)).toHaveProperty("release");
});

test("goes to exactly one of many that come at once, also over a dead holder's file", async () => {
  await writeFile(file, "damaged");
  const outcomes = await Promise.all(
    Array.from({ length: 30 }, (_, i) => takeLock(file, `http://h:${i + 1}`)),
  );
  expect(outcomes.filter((outcome) => "release" in outcome)).toHaveLength(1);
  expect(JSON.parse(await readFile(file, "utf8"))).toMatchObject({ pid: process.pid });
  expect(await readdir(dir)).toEqual(["supervisor.lock"]);
});

import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { inTime } from "./in-time.ts";
import { type JournalEntry, machineDir, removeEntry, writeEntry } from "./journal.ts";

const SOON_MS = 20;
const LONG_MS = 30_000;

it("work in time returns its result and is not given up", async () => {
  const giveUp = () => Promise.reject(new Error("given up"));
  expect(await inTime(LONG_MS, { work: async () => "done", giveUp })).toBe("done");
  const failing = { work: () => Promise.reject(new Error("failed")), giveUp };
  await expect(inTime(LONG_MS, failing)).rejects.toThrow("failed");
});

it("late work is aborted, given up, and over before the caller continues without it", async () => {
  const seen: string[] = [];
  const end = Promise.withResolvers<void>();
  const work = async (late: AbortSignal) => {
    late.addEventListener("abort", () => seen.push("aborted"));
    await end.promise;
    seen.push("ended");
  };
  const giveUp = async () => {
    seen.push("given up");
    setTimeout(end.resolve, SOON_MS);
  };
  await expect(inTime(SOON_MS, { work, giveUp })).rejects.toThrow("not within");
  expect(seen).toEqual(["aborted", "given up", "ended"]);
});

it("the fallback finds the folder free, however much the late work was writing to it", async () => {
  const dataDir = await mkdtemp(path.join(tmpdir(), "journal-"));
  onTestFinished(() => rm(dataDir, { recursive: true }));
  const entry = (state: JournalEntry["state"]) => ({ machine_id: "m-1", state, slot: 1 }) as JournalEntry;
  let isGivenUp = false;
  const work = async () => {
    while (!isGivenUp) await writeEntry(dataDir, entry("running"));
    for (let i = 0; i < 5; i++) await writeEntry(dataDir, entry("running"));
  };
  const giveUp = async () => {
    isGivenUp = true;
  };
  await expect(inTime(SOON_MS, { work, giveUp })).rejects.toThrow();
  await removeEntry(dataDir, "m-1");
  for (let i = 0; i < 5; i++) await writeEntry(dataDir, entry("starting"));
  expect(await readdir(machineDir(dataDir, "m-1"))).toEqual(["machine.json"]);
  const text = await readFile(path.join(machineDir(dataDir, "m-1"), "machine.json"), "utf8");
  expect(JSON.parse(text)).toEqual(entry("starting"));
});

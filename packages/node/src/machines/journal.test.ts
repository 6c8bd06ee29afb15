import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import {
  type JournalEntry,
  machinesDir,
  readEntry,
  readJournal,
  removeEntry,
  writeEntry,
} from "./journal.ts";

const id = `${"a".repeat(21)}-1`;
const entry: JournalEntry = {
  machine_id: id,
  spec: { template: "base", size: "small", hostname: "a", no_sudo: false },
  state: "starting",
  slot: 3,
};

let dataDir: string;
beforeEach(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), "journal-"));
});
afterEach(() => rm(dataDir, { recursive: true, force: true }));

it("keeps the last entry written for a machine and leaves no temporary file", async () => {
  await writeEntry(dataDir, entry);
  await writeEntry(dataDir, { ...entry, state: "running", process: { pid: 7, startTicks: "9" } });
  expect(await readEntry(dataDir, id)).toMatchObject({ state: "running", process: { pid: 7 } });
  expect(await readdir(path.join(machinesDir(dataDir), id))).toEqual(["machine.json"]);
});

it("keeps what a machine is to be stopped for, until that is overwritten", async () => {
  const wanted = `pau_${"c".repeat(21)}`;
  await writeEntry(dataDir, { ...entry, state: "running", holding_for: wanted });
  expect(await readEntry(dataDir, id)).toMatchObject({ state: "running", holding_for: wanted });
  await writeEntry(dataDir, { ...entry, state: "held", holding_for: undefined });
  const held = await readEntry(dataDir, id);
  expect(held?.state).toBe("held");
  expect(held).not.toHaveProperty("holding_for");
});

it("lists a folder whose entry is torn or missing as unowned", async () => {
  const torn = path.join(machinesDir(dataDir), `${"b".repeat(21)}-1`);
  await mkdir(torn, { recursive: true });
  await writeFile(path.join(torn, "machine.json"), '{"machine_id":');
  await writeEntry(dataDir, entry);
  const journal = await readJournal(dataDir);
  expect(journal.map(({ entry }) => entry?.machine_id ?? null).sort()).toEqual([id, null]);
});

it("removes a machine's entry with everything in its folder", async () => {
  await writeEntry(dataDir, entry);
  await removeEntry(dataDir, id);
  await removeEntry(dataDir, id);
  expect(await readJournal(dataDir)).toEqual([]);
});

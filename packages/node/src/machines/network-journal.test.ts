import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { machineDir } from "./journal.ts";
import { readPins, writePins } from "./network-journal.ts";

const ID = "ses_000000000000000000001-1";
const PIN = { host: "a.example", address: "192.0.2.1", port: 8443, until: 1_800_000_000_000.5 };

let dataDir: string;
beforeEach(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), "network-journal-"));
  await mkdir(machineDir(dataDir, ID), { recursive: true });
});
afterEach(async () => await rm(dataDir, { recursive: true }));

it("the last pins written for a machine are read", async () => {
  await writePins(dataDir, ID, [PIN, { ...PIN, port: 9000 }]);
  await writePins(dataDir, ID, [PIN]);
  expect(await readPins(dataDir, ID)).toEqual([PIN]);
  expect(await readdir(machineDir(dataDir, ID))).toEqual(["pins.json"]);
});

it.each([
  ["nothing that was written", undefined],
  ["half a file", JSON.stringify([PIN]).slice(0, -9)],
  ["no list", "{}"],
  ["one pin that is none", JSON.stringify([PIN, { ...PIN, address: "192.0.2.1; flush ruleset" }])],
])("%s counts as no pins", async (_what, text) => {
  if (text !== undefined) await writeFile(path.join(machineDir(dataDir, ID), "pins.json"), text);
  expect(await readPins(dataDir, ID)).toEqual([]);
});

import { mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import type { Log } from "@vivarium/kit/log";
import { afterEach, beforeEach, expect, test } from "vitest";
import { GuestSettingsFile } from "./guest-settings.ts";

let folder: string;
let file: string;
let errors: object[];
const log = { error: (fields: object) => void errors.push(fields) } as unknown as Log;

beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), "viv-settings-"));
  file = path.join(folder, "guest.json");
  errors = [];
});
afterEach(() => rm(folder, { recursive: true }));

/** Replaces the file as an editor does, so that each version is a file of its own. */
async function write(text: string): Promise<void> {
  await writeFile(`${file}.new`, text);
  await rename(`${file}.new`, file);
}
const variable = (value: string) => JSON.stringify({ variables: { A: value } });

test("without a file there are no settings", async () => {
  const settings = await GuestSettingsFile.open(undefined, log);
  expect(await settings.current()).toEqual({ variables: {}, apt_sources: [] });
});

test("a changed file counts for the next session", async () => {
  await write(variable("1"));
  const settings = await GuestSettingsFile.open(file, log);
  const first = await settings.current();
  expect(first.variables).toEqual({ A: "1" });
  expect(await settings.current()).toBe(first);
  await write(variable("2"));
  expect((await settings.current()).variables).toEqual({ A: "2" });
  expect(errors).toEqual([]);
});

test("a changed file counts for all sessions that start side by side after the change", async () => {
  await write(variable("1"));
  const settings = await GuestSettingsFile.open(file, log);
  await write(variable("2"));
  const side = await Promise.all([settings.current(), settings.current(), settings.current()]);
  expect(side.map(({ variables }) => variables)).toEqual([{ A: "2" }, { A: "2" }, { A: "2" }]);
});

test.each([
  ["broken", () => write("{")],
  ["wrong", () => write('{"variables": {"A": "hunter2\\""}}')],
  ["removed", () => rm(file)],
])("the last good settings outlive a file that is %s, which is logged once", async (_how, harm) => {
  await write(variable("1"));
  const settings = await GuestSettingsFile.open(file, log);
  await harm();
  for (let session = 0; session < 3; session++)
    expect((await settings.current()).variables).toEqual({ A: "1" });
  expect(errors).toEqual([expect.objectContaining({ file })]);
  expect(JSON.stringify(errors)).not.toContain("hunter2");
  await write(variable("2"));
  expect((await settings.current()).variables).toEqual({ A: "2" });
  expect(errors).toHaveLength(1);
});

test("a service does not start with a file that is missing or wrong", async () => {
  await expect(GuestSettingsFile.open(file, log)).rejects.toThrow(
    new RegExp(`^VIV_GUEST_SETTINGS: ${file}: ENOENT`),
  );
  await write('{"variables": {"A-B": ""}}');
  await expect(GuestSettingsFile.open(file, log)).rejects.toThrow("variables.A-B: must be a variable's name");
});

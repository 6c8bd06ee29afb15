import { existsSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { expect, onTestFinished, test, vi } from "vitest";
import { dir, inOwnDirectories } from "../../test-support/program.ts";
import { hasMachinesUnit, removeMachinesUnit, writeMachinesUnit } from "./machines-unit.ts";

inOwnDirectories();

/** A systemctl that records its calls, each with what the unit's file says about stops by hand; `failing` ends with 1. */
async function recordSystemctl(file: string, failing = ""): Promise<() => Promise<string[]>> {
  const record = path.join(dir, "calls");
  const script = `#!/bin/sh
echo "$*: $(sed -n 's/^RefuseManualStop=//p' "${file}" 2>/dev/null)" >>"${record}"
[ "$1" != "${failing}" ]`;
  await writeFile(path.join(dir, "systemctl"), script, { mode: 0o755 });
  vi.stubEnv("PATH", `${dir}:${process.env.PATH}`);
  onTestFinished(() => void vi.unstubAllEnvs());
  return async () => (await readFile(record, "utf8")).trimEnd().split("\n");
}

test("an uninstall lets systemd stop the unit of the machines, and removes it once it has stopped", async () => {
  const file = path.join(dir, "machines.service");
  const calls = await recordSystemctl(file);
  await writeMachinesUnit(file);
  expect(await readFile(file, "utf8")).toContain("RefuseManualStop=yes");
  await removeMachinesUnit(file);
  expect(await calls()).toEqual([
    "daemon-reload: no",
    "stop vivarium-machines.service: no",
    "daemon-reload:",
  ]);
  expect(existsSync(file)).toBe(false);
});

test("a stop that fails leaves the file, so that a repetition finds it", async () => {
  const file = path.join(dir, "machines.service");
  await recordSystemctl(file, "stop");
  await writeMachinesUnit(file);
  await expect(removeMachinesUnit(file)).rejects.toThrow("systemctl stop vivarium-machines.service failed");
  expect(await hasMachinesUnit(file)).toBe(true);
});

test("a unit of an operator's own stays as it is", async () => {
  const file = path.join(dir, "machines.service");
  await writeFile(file, "[Service]\nExecStart=/bin/sleep infinity\n");
  await writeMachinesUnit(file);
  expect(await readFile(file, "utf8")).toBe("[Service]\nExecStart=/bin/sleep infinity\n");
  expect(await hasMachinesUnit(file)).toBe(false);
});

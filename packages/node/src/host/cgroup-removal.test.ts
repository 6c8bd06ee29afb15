/** On the host's own cgroup v2 file system. */
import { existsSync, mkdirSync, rmdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { sleep } from "@vivarium/kit/clock";
import { identify } from "@vivarium/kit/process-identity";
import { expect, test } from "vitest";
import { ignoreKills, makeTestGroup, pidsIn, startIn } from "../../test-support/test-group.ts";
import { isPopulated, removeGroup } from "./cgroup-removal.ts";

const LIMIT_MS = 10_000;
const FORTY = "i=0; while [ $i -lt 40 ]; do sleep 600 & i=$((i + 1)); done";

test("a group with many processes is removed with all of them", async () => {
  const group = path.join(makeTestGroup(), "machine");
  mkdirSync(group);
  await startIn(group, FORTY);
  const pids = pidsIn(group);
  expect(pids.length).toBe(41);
  await removeGroup(group, LIMIT_MS);
  expect(existsSync(group)).toBe(false);
  expect(pids.filter(identify)).toEqual([]);
});

test("a removal waits for processes that take their time; without the wait the group is busy", async () => {
  const group = path.join(makeTestGroup(), "machine");
  mkdirSync(group);
  const child = await startIn(group, "sleep 600 &");
  const noticeKills = ignoreKills(group);
  const removal = removeGroup(group, LIMIT_MS);
  await sleep(100);
  expect(() => rmdirSync(group)).toThrow("EBUSY");
  noticeKills();
  for (const pid of pidsIn(group)) process.kill(pid, "SIGKILL");
  await removal;
  expect(existsSync(group)).toBe(false);
  expect(child.killed).toBe(false);
});

test("a frozen group and the groups below it are removed", async () => {
  const group = path.join(makeTestGroup(), "machine");
  const below = path.join(group, "below/further");
  mkdirSync(below, { recursive: true });
  await startIn(below, "sleep 600 &");
  await startIn(group, "sleep 600 &");
  writeFileSync(path.join(group, "cgroup.freeze"), "1");
  await removeGroup(group, LIMIT_MS);
  expect(existsSync(group)).toBe(false);
});

test("processes that do not end are named after the limit, and a later removal succeeds", async () => {
  const group = path.join(makeTestGroup(), "machine");
  mkdirSync(group);
  const child = await startIn(group, "sleep 600 &");
  const noticeKills = ignoreKills(group);
  await expect(removeGroup(group, 200)).rejects.toThrow(`pid ${child.pid} (sh, state `);
  expect(existsSync(group)).toBe(true);
  noticeKills();
  await removeGroup(group, LIMIT_MS);
  expect(existsSync(group)).toBe(false);
});

test("an absent group is removed, also one that goes at the same time", async () => {
  const group = path.join(makeTestGroup(), "machine");
  await removeGroup(group, LIMIT_MS);
  mkdirSync(group);
  await startIn(group, FORTY);
  await Promise.all([removeGroup(group, LIMIT_MS), removeGroup(group, LIMIT_MS)]);
  expect(existsSync(group)).toBe(false);
});

test("a group is populated by what its events say", () => {
  expect(isPopulated("populated 1\nfrozen 0\n")).toBe(true);
  expect(isPopulated("populated 0\nfrozen 1\n")).toBe(false);
});

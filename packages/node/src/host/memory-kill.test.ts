/** On folders that look like a group: the hosts of these tests may lack the memory controller. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { explainMemoryKill } from "./memory-kill.ts";

/** A folder with the files of a group that has had these events. */
function groupWith(events: Record<string, number>): string {
  const group = mkdtempSync(path.join(tmpdir(), "cgroup-"));
  onTestFinished(() => rmSync(group, { recursive: true }));
  const counts = { low: 0, high: 12, max: 31, oom: 0, oom_kill: 0, oom_group_kill: 0, ...events };
  const lines = Object.entries(counts).map(([name, count]) => `${name} ${count}\n`);
  writeFileSync(path.join(group, "memory.events"), lines.join(""));
  writeFileSync(path.join(group, "memory.max"), "1342177280\n");
  return group;
}

test("a machine that was killed at its own limit is said to be, with the limit", () => {
  const reason = explainMemoryKill(groupWith({ oom: 1, oom_kill: 2, oom_group_kill: 1 }));
  expect(reason).toMatch(/more memory than its limit of 1342177280 bytes/);
});

test("a machine that was killed because the host was out of memory has another reason", () => {
  const reason = explainMemoryKill(groupWith({ oom_kill: 2 }));
  expect(reason).toContain("the host or the group of all machines was out of memory");
});

test("a limit that was reached and killed nothing explains no end", () => {
  expect(explainMemoryKill(groupWith({ oom: 3 }))).toBeUndefined();
});

test("without a group, or without the memory controller, there is no explanation", () => {
  expect(explainMemoryKill("/nowhere")).toBeUndefined();
});

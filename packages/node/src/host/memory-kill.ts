/** Explains from a machine's cgroup whether the kernel ended the machine for lack of memory. */
import { readFileSync } from "node:fs";
import path from "node:path";

/**
 * The reason, or undefined if the kernel killed nothing in the group. `memory.events` counts in `oom_kill` what was
 * killed for whatever lack of memory, and in `oom` how often the group's own limit was the one that was reached.
 */
export function explainMemoryKill(group: string): string | undefined {
  const events = readEvents(path.join(group, "memory.events"));
  if (!events.get("oom_kill")) return undefined;
  if (!events.get("oom"))
    return "the kernel ended it, as the host or the group of all machines was out of memory";
  const limit = readText(path.join(group, "memory.max")).trim();
  return `it needed more memory than its limit of ${limit} bytes (memory.max of its cgroup)`;
}

function readEvents(file: string): Map<string, number> {
  const lines = readText(file).trim().split("\n");
  return new Map(lines.map((line) => [line.split(" ")[0] ?? "", Number(line.split(" ")[1])]));
}

/** Empty where the group is gone, or the host has no memory controller. */
function readText(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return "";
  }
}

/** What processes cost, as the kernel counts it. */
import { readFileSync } from "node:fs";

const TICKS_PER_SECOND = 100;

/** Seconds of processor time so far, of all of them together and of their children that ended. */
export function cpuSeconds(pids: number[]): number {
  return pids.reduce((sum, pid) => {
    const stat = readProc(pid, "stat");
    // From field 3 on; the second is the command in parentheses and may itself hold spaces and parentheses.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    const ticks = fields.slice(11, 15).reduce((all, one) => all + Number(one), 0);
    return sum + ticks / TICKS_PER_SECOND;
  }, 0);
}

/** Memory that would be free without this process: what it shares with nobody. */
export function ownMemoryBytes(pid: number): number {
  const rollup = readProc(pid, "smaps_rollup");
  const kib = (field: string) => Number(new RegExp(`^${field}:\\s+(\\d+)`, "m").exec(rollup)?.[1] ?? 0);
  return (kib("Private_Clean") + kib("Private_Dirty")) * 1024;
}

/** Nothing of a process that has ended. */
function readProc(pid: number, name: string): string {
  try {
    return readFileSync(`/proc/${pid}/${name}`, "utf8");
  } catch {
    return "";
  }
}

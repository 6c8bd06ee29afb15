/** Costs of processes, as the kernel counts them. */
import { readFileSync } from "node:fs";

const TICKS_PER_SECOND = 100;

/** Seconds of processor time so far, of all of them together and of their children that ended. */
export function cpuSeconds(pids: number[]): number {
  return pids.reduce((sum, pid) => {
    const stat = readProc(pid, "stat");
    // From field 3 on; field 2 is the command in parentheses and may itself contain spaces and parentheses.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    const ticks = fields.slice(11, 15).reduce((all, one) => all + Number(one), 0);
    return sum + ticks / TICKS_PER_SECOND;
  }, 0);
}

/** Memory that would be free without this process: memory that it does not share. */
export function ownMemoryBytes(pid: number): number {
  const rollup = readProc(pid, "smaps_rollup");
  const kib = (field: string) => Number(new RegExp(`^${field}:\\s+(\\d+)`, "m").exec(rollup)?.[1] ?? 0);
  return (kib("Private_Clean") + kib("Private_Dirty")) * 1024;
}

/** Zero for a process that has ended. */
function readProc(pid: number, name: string): string {
  try {
    return readFileSync(`/proc/${pid}/${name}`, "utf8");
  } catch {
    return "";
  }
}

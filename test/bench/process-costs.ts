/** What processes cost, as the kernel counts it. */
import { readFileSync } from "node:fs";

const TICKS_PER_SECOND = 100;

/** Seconds of processor time so far, of all of them together. */
export function cpuSeconds(pids: number[]): number {
  return pids.reduce((sum, pid) => {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return sum + (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND;
  }, 0);
}

/** Memory that would be free without this process: what it shares with nobody. */
export function ownMemoryBytes(pid: number): number {
  const rollup = readFileSync(`/proc/${pid}/smaps_rollup`, "utf8");
  const kib = (field: string) => Number(new RegExp(`^${field}:\\s+(\\d+)`, "m").exec(rollup)?.[1] ?? 0);
  return (kib("Private_Clean") + kib("Private_Dirty")) * 1024;
}

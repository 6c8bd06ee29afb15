/** Processes named by pid and start time, so that a reused pid is never taken for ours. */
import { readFileSync } from "node:fs";
import { sleep } from "@vivarium/kit/clock";

export interface ProcessIdentity {
  pid: number;
  /** Field 22 of /proc/<pid>/stat: clock ticks after boot. */
  startTicks: string;
}

export function identify(pid: number): ProcessIdentity | null {
  const stat = readStat(pid);
  return stat ? { pid, startTicks: stat.startTicks } : null;
}

export function isAlive(identity: ProcessIdentity): boolean {
  const stat = readStat(identity.pid);
  return stat !== null && stat.startTicks === identity.startTicks && stat.state !== "Z";
}

/** SIGKILL, then waits until the process is gone. */
export async function killAndWait(identity: ProcessIdentity, limitMs = 10_000): Promise<void> {
  const deadline = Date.now() + limitMs;
  while (isAlive(identity)) {
    try {
      process.kill(identity.pid, "SIGKILL");
    } catch {
      return;
    }
    if (Date.now() > deadline)
      throw new Error(`process ${identity.pid} did not end within ${limitMs} ms of SIGKILL`);
    await sleep(5);
  }
}

function readStat(pid: number): { state: string; startTicks: string } | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The second field is the command in parentheses and may itself hold spaces and parentheses.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return { state: fields[0] as string, startTicks: fields[19] as string };
  } catch {
    return null;
  }
}

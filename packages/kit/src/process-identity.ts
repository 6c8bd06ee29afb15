/** Processes named by pid, start time and boot, so that a reused pid is never taken for the process that had it before. */
import { readFileSync } from "node:fs";
import { sleep } from "./clock.ts";

export interface ProcessIdentity {
  pid: number;
  /** Field 22 of /proc/<pid>/stat: clock ticks after boot. */
  startTicks: string;
  /** Absent in files of earlier versions, which then match any boot. */
  bootId?: string | undefined;
}

/** The process that has this pid now. Undefined if there is none, or only a zombie. */
export function identify(pid: number): ProcessIdentity | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The second field is the command in parentheses, which may contain spaces and parentheses.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    if (fields[0] === "Z" || fields[0] === "X") return undefined;
    return { pid, startTicks: fields[19] as string, bootId: readBootId() };
  } catch {
    return undefined;
  }
}

export function isAlive({ pid, startTicks, bootId }: ProcessIdentity): boolean {
  const now = identify(pid);
  return now?.startTicks === startTicks && (bootId === undefined || now.bootId === bootId);
}

/** Whether the process was started before the host last booted. Unknown, and so false, for one without a boot. */
export function isOfEarlierBoot({ bootId }: ProcessIdentity): boolean {
  return bootId !== undefined && bootId !== readBootId();
}

/** Sends SIGKILL and waits until the process is gone. */
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

const readBootId = () => readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();

import { readFileSync } from "node:fs";

/** A pid alone is no identity: it is reused. With its start time and the boot it belongs to, it is. */
export interface ProcessIdentity {
  pid: number;
  /** Clock ticks since boot. */
  startTicks: number;
  bootId: string;
}

/** The process that has this pid now; undefined without one, or for a zombie. */
export function identify(pid: number): ProcessIdentity | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The name in parentheses may contain anything, spaces and parentheses too.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    if (fields[0] === "Z" || fields[0] === "X") return undefined;
    return { pid, startTicks: Number(fields[19]), bootId: bootId() };
  } catch {
    return undefined;
  }
}

export function isAlive(identity: ProcessIdentity): boolean {
  const now = identify(identity.pid);
  return now?.startTicks === identity.startTicks && now.bootId === identity.bootId;
}

function bootId(): string {
  return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
}

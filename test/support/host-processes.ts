/** Reads processes of this host from /proc, so that tests need not trust the service. */
import { readdirSync, readFileSync, readlinkSync } from "node:fs";

/** Flag of a process in the kernel. */
const PF_KTHREAD = 0x20_00_00;

export interface HostProcess {
  pid: number;
  ppid: number;
  uid: number;
  argv: string[];
}

export function hostProcesses(): HostProcess[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => readProcess(Number(name)) ?? []);
}

export function readProcess(pid: number): HostProcess | undefined {
  try {
    const status = readFileSync(`/proc/${pid}/status`, "utf8");
    if (/^State:\s+Z/m.test(status)) return undefined;
    return {
      pid,
      ppid: statusNumber(status, "PPid"),
      uid: statusNumber(status, "Uid"),
      argv: readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0").slice(0, -1),
    };
  } catch {
    return undefined;
  }
}

/** Whether it is a thread of the kernel: it has no program, and ends with what it serves. */
export function isKernelThread(pid: number): boolean {
  try {
    // The fields after the name, which may contain anything: state, parent, ... flags.
    const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ").at(-1)?.split(" ") ?? [];
    return (Number(fields[6]) & PF_KTHREAD) !== 0;
  } catch {
    return false;
  }
}

export function descendantsOf(pid: number): HostProcess[] {
  const all = hostProcesses();
  const found = new Set([pid]);
  for (let size = 0; size !== found.size; ) {
    size = found.size;
    for (const one of all) if (found.has(one.ppid)) found.add(one.pid);
  }
  return all.filter((one) => one.pid !== pid && found.has(one.pid));
}

/** Resident memory in bytes; 0 for a process that is gone. */
export function residentBytes(pid: number): number {
  try {
    return statusNumber(readFileSync(`/proc/${pid}/status`, "utf8"), "VmRSS") * 1024;
  } catch {
    return 0;
  }
}

export function namespaceOf(pid: number | "self", kind: string): string {
  return readlinkSync(`/proc/${pid}/ns/${kind}`);
}

function statusNumber(status: string, field: string): number {
  return Number(new RegExp(`^${field}:\\s+(\\d+)`, "m").exec(status)?.[1] ?? 0);
}

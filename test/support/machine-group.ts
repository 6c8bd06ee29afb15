/** The cgroup of a session's machine, read from /proc and the cgroup file system. */
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { isKernelThread } from "./host-processes.ts";
import { machinePid } from "./machine-traces.ts";

const ROOT = "/sys/fs/cgroup";
const NEEDED = ["cpu", "memory", "pids"];

/** Why machines have no limits on this host. Undefined if they have them. */
export function lackOfGroups(): string | undefined {
  const file = join(ROOT, "cgroup.controllers");
  if (!existsSync(file)) return "no unified cgroup v2 hierarchy";
  const present = readFileSync(file, "utf8").trim().split(" ");
  const missing = NEEDED.filter((name) => !present.includes(name));
  return missing.length === 0 ? undefined : `no cgroup controller ${missing.join(", ")}`;
}

export class MachineGroup {
  readonly pid: number;
  readonly path: string;

  constructor(dataDir: string, sessionId: string) {
    this.pid = machinePid(dataDir, sessionId);
    const line = /^0::(.+)$/m.exec(readFileSync(`/proc/${this.pid}/cgroup`, "utf8"))?.[1] ?? "";
    this.path = join(ROOT, line);
  }

  read(file: string): string {
    return readFileSync(join(this.path, file), "utf8").trim();
  }

  set(file: string, value: string): void {
    writeFileSync(join(this.path, file), value);
  }

  /** One number of a file with a name and a number on each line, such as `memory.events`. */
  count(file: string, name: string): number {
    return Number(new RegExp(`^${name} (\\d+)$`, "m").exec(this.read(file))?.[1]);
  }

  /** Without threads of the kernel: KVM has one per machine on some versions of Linux, in the group of its QEMU. */
  get pids(): number[] {
    const all = this.read("cgroup.procs").split("\n").filter(Boolean).map(Number);
    return all.filter((pid) => !isKernelThread(pid));
  }

  /** Number of threads of QEMU. */
  get threads(): number {
    return Number(/^Threads:\s+(\d+)$/m.exec(readFileSync(`/proc/${this.pid}/status`, "utf8"))?.[1]);
  }

  /** Runs a shell script on the host in the machine's group, in place of a QEMU that its guest took over. */
  run(script: string): ChildProcess {
    const enter = `echo 0 > ${this.path}/cgroup.procs && exec sh -c "$0"`;
    return spawn("sh", ["-c", enter, script], { stdio: "ignore" });
  }
}

/** Checks from /proc how a process is confined (J-01, J-02). */
import { existsSync, lstatSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import { namespaceOf } from "./host-processes.ts";

const NAMESPACES = ["mnt", "pid", "net", "ipc", "uts"];
const CAPABILITY_SETS = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
/** Most open files of a jailed QEMU, without the eventfds of its virtqueues, which give no access. */
const MAX_FDS = 24;
const IS_CGROUP_V2 = existsSync("/sys/fs/cgroup/cgroup.controllers");

/** Properties of a jail that this process lacks, one line each. */
export function jailFaults(pid: number): string[] {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  const field = (name: string) => new RegExp(`^${name}:\\s+(.+)$`, "m").exec(status)?.[1]?.trim() ?? "";
  const faults: string[] = [];
  const uids = field("Uid").split(/\s+/);
  if (uids.some((uid) => Number(uid) < 1000 || uid !== uids[0])) faults.push(`uid ${uids}`);
  for (const set of CAPABILITY_SETS) if (!/^0+$/.test(field(set))) faults.push(`${set} ${field(set)}`);
  if (field("NoNewPrivs") !== "1") faults.push("may gain privileges");
  if (field("Seccomp") !== "2") faults.push("no seccomp filter");
  if (Number(readFileSync(`/proc/${pid}/oom_score_adj`, "utf8")) < 500)
    faults.push("not first to go without memory");
  for (const kind of NAMESPACES)
    if (namespaceOf(pid, kind) === namespaceOf("self", kind)) faults.push(`${kind} namespace of the host`);
  const fds = openTargets(pid).filter((target) => target !== "anon_inode:[eventfd]");
  if (fds.length > MAX_FDS) faults.push(`${fds.length} open files`);
  if (existsSync(`/proc/${pid}/root/root`) || existsSync(`/proc/${pid}/root/home`))
    faults.push("sees the host's files");
  const setuid = setuidFiles(`/proc/${pid}/root`);
  if (setuid.length > 0) faults.push(`set-uid files: ${setuid.slice(0, 3)}`);
  if (IS_CGROUP_V2 && !/^0::\/.*vivarium[^/]*\/slot-\d+$/m.test(readFileSync(`/proc/${pid}/cgroup`, "utf8")))
    faults.push("no cgroup of its own");
  return faults;
}

/** Mount points that the process could write to by their mount options. */
export function writableMounts(pid: number): string[] {
  const mounts = readFileSync(`/proc/${pid}/mountinfo`, "utf8").trim().split("\n");
  return mounts
    .map((mount) => mount.split(" "))
    .flatMap(([, , , , at = "", options = ""]) => (options.split(",").includes("rw") ? [at] : []));
}

/** Paths of its open files, as the process itself sees them. */
export function openPaths(pid: number): string[] {
  return openTargets(pid).filter((target) => target.startsWith("/"));
}

function openTargets(pid: number): string[] {
  return readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
    try {
      return [readlinkSync(`/proc/${pid}/fd/${fd}`)];
    } catch {
      return [];
    }
  });
}

function setuidFiles(root: string, depth = 0): string[] {
  if (depth > 3) return [];
  return readdirSync(root).flatMap((name) => {
    const path = join(root, name);
    const info = lstatSync(path, { throwIfNoEntry: false });
    if (!info || info.isSymbolicLink() || (depth === 0 && ["proc", "sys", "dev"].includes(name))) return [];
    if (info.isDirectory()) return setuidFiles(path, depth + 1);
    return info.isFile() && (info.mode & 0o6000) !== 0 ? [path] : [];
  });
}

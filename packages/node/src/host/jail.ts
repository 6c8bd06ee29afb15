/**
 * Starts QEMU in its jail: own mount, pid, ipc, uts and network namespaces, a root that holds QEMU and this machine's
 * files alone, a uid of its own, no capabilities, no_new_privs, bounded resources. The tools do it in this order:
 * prlimit → nsenter (network) → bubblewrap (mounts, pid, ipc, uts) → setpriv (uid, capabilities) → QEMU, which adds
 * its own seccomp filter. QEMU is detached, so it outlives this process.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { text } from "node:stream/consumers";
import { identify, type ProcessIdentity } from "@vivarium/kit/process-identity";
import { KIB } from "@vivarium/kit/sizes";
import type { JAIL_PATHS } from "../qemu/arguments.ts";
import { joinCgroup } from "./cgroup.ts";
import type { DeviceNode } from "./devices.ts";
import type { Slot } from "./slots.ts";

const STDERR_KEPT_BYTES = 8 * KIB;
const OPEN_FILES = 512;
/** If the host runs out of memory, the kernel ends a large machine before the services. */
const OOM_SCORE_ADJ = 500;

export interface Bind {
  source: string;
  target: (typeof JAIL_PATHS)[keyof typeof JAIL_PATHS];
  writable: boolean;
}

export interface JailedProcess {
  identity: ProcessIdentity;
  /** The last output on standard error, for the operator's log. */
  lastWords: () => string;
}

export interface JailSpec {
  slot: Slot;
  qemuRoot: string;
  binds: Bind[];
  devices: DeviceNode[];
  /** Largest file that QEMU may write. */
  fileBytes: number;
  memoryBytes: number;
  vcpus: number;
  arguments: string[];
}

export async function startJailed(spec: JailSpec): Promise<JailedProcess> {
  const child = spawn("prlimit", command(spec), {
    detached: true,
    stdio: ["ignore", "ignore", "pipe", "pipe"],
    env: {},
  });
  const lastWords = keepLastWords(child);
  const pid = await childPid(child, lastWords);
  const identity = identify(pid);
  if (!identity) throw new Error(`QEMU ended at once: ${lastWords()}`);
  await writeFile(`/proc/${pid}/oom_score_adj`, String(OOM_SCORE_ADJ));
  await joinCgroup(spec, pid);
  child.unref();
  return { identity, lastWords };
}

function command(spec: JailSpec): string[] {
  const { slot, qemuRoot } = spec;
  return [
    ...["--core=0", `--nofile=${OPEN_FILES}`, "--memlock=0", `--fsize=${spec.fileBytes}`],
    ...["/usr/bin/nsenter", `--net=/run/netns/${slot.netns}`],
    ...["/usr/bin/bwrap", "--ro-bind", qemuRoot, "/"],
    ...["--dev", "/dev", "--perms", "0755", "--dir", "/dev/net"],
    ...spec.devices.flatMap(({ source, target }) => ["--dev-bind", source, target]),
    ...["--tmpfs", "/tmp"],
    ...spec.binds.flatMap(({ source, target, writable }) => [
      writable ? "--bind" : "--ro-bind",
      source,
      target,
    ]),
    ..."--unshare-pid --unshare-ipc --unshare-uts --as-pid-1 --new-session --clearenv --chdir /".split(" "),
    ..."--cap-drop ALL --cap-add CAP_SETUID --cap-add CAP_SETGID --cap-add CAP_SETPCAP".split(" "),
    ...["--info-fd", "3", "--"],
    ...["/usr/bin/setpriv", `--reuid=${slot.uid}`, `--regid=${slot.uid}`, "--clear-groups"],
    ...["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"],
    ...["/usr/bin/qemu-system-x86_64", ...spec.arguments],
  ];
}

function keepLastWords(child: ChildProcess): () => string {
  let kept = "";
  child.stderr?.setEncoding("utf8");
  child.stderr?.on("data", (chunk: string) => {
    kept = (kept + chunk).slice(-STDERR_KEPT_BYTES);
  });
  child.stderr?.on("error", () => {});
  (child.stderr as { unref?: () => void } | null)?.unref?.();
  return () => kept.trim() || "no output";
}

/** bubblewrap writes the pid of the process that becomes QEMU, then closes the descriptor. */
async function childPid(child: ChildProcess, lastWords: () => string): Promise<number> {
  const failed = new Promise<never>((_, reject) => child.once("error", reject));
  const info = await Promise.race([text(child.stdio[3] as NodeJS.ReadableStream), failed]);
  const match = /"child-pid": (\d+)/.exec(info);
  if (!match) throw new Error(`the jail could not be built: ${lastWords()}`);
  return Number(match[1]);
}

/**
 * Starts QEMU in its jail: own mount, pid, ipc, uts and network namespaces, a root that holds QEMU and this machine's
 * files alone, a uid of its own, no capabilities, no_new_privs, bounded resources. The tools do it in this order:
 * prlimit → nsenter (network) → bubblewrap (mounts, pid, ipc, uts) → setpriv (uid, capabilities) → QEMU, which adds
 * its own seccomp filter. All of them run in the machine's cgroup. QEMU is detached, so it outlives this process.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { chown, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { text } from "node:stream/consumers";
import { allOrNone } from "@vivarium/kit/all-or-none";
import { endsWithin } from "@vivarium/kit/clock";
import { identify, isAlive, killAndWait, type ProcessIdentity } from "@vivarium/kit/process-identity";
import { KIB } from "@vivarium/kit/sizes";
import type { UndoStack } from "@vivarium/kit/undo-stack";
import type { JAIL_PATHS, MachineShape } from "../qemu/arguments.ts";
import { Qmp } from "../qemu/qmp.ts";
import { type Cgroups, entering } from "./cgroup.ts";
import { feedOnce } from "./fifo.ts";
import { run } from "./run.ts";
import type { Slot } from "./slots.ts";

/** Major and minor numbers of the device nodes, by their path in the jail. */
const TUN = { "/dev/net/tun": ["10", "200"] };
const KVM = { "/dev/kvm": ["10", "232"] };
const STDERR_KEPT_BYTES = 8 * KIB;
/** How long the end of that output is waited for. */
const LAST_WORDS_MS = 1_000;
const OPEN_FILES = 512;
/** OOM score adjustment of QEMU: out of memory, the kernel ends a large machine before the services. */
const OOM_SCORE_ADJ = 500;

export interface Bind {
  source: string;
  target: (typeof JAIL_PATHS)[keyof typeof JAIL_PATHS];
  writable: boolean;
}

interface JailSpec {
  slot: Slot;
  /** The machine's folder, on a file system that is not mounted `nodev`. QEMU's sockets appear in its `run`. */
  dir: string;
  shape: MachineShape;
  qemuRoot: string;
  binds: Bind[];
  /** Largest file that QEMU may write. */
  fileBytes: number;
  arguments: string[];
  /** Whether it has no network device. */
  isOffline?: boolean | undefined;
  /** The key of its disk, which QEMU reads from a FIFO while it starts. */
  feed?: { fifo: string; content: string } | undefined;
}

export interface Qemu {
  process: ProcessIdentity;
  qmp: Qmp;
}

/** Starts a jailed QEMU and connects to its monitor. Its cgroup is removed with its slot (`end-processes.ts`). */
export async function startQemu(
  cgroups: Cgroups,
  spec: JailSpec,
  undo: UndoStack,
  limitMs: number,
): Promise<Qemu> {
  const { process, lastWords } = await startJailed(cgroups, spec);
  undo.push("process", () => killAndWait(process));
  const monitor = path.join(spec.dir, "run/qmp.sock");
  const limits = { limitMs, alive: () => isAlive(process) };
  const [qmp] = await allOrNone([
    Qmp.connect(monitor, limits),
    spec.feed && feedOnce(spec.feed.fifo, spec.feed.content, limits),
  ]).catch(async (cause) => {
    throw new Error(`QEMU did not start: ${await lastWords()}`, { cause });
  });
  undo.push("monitor", () => qmp.close());
  return { process, qmp };
}

async function startJailed(
  cgroups: Cgroups,
  spec: JailSpec,
): Promise<{ process: ProcessIdentity; lastWords: () => Promise<string> }> {
  const devices = await makeDevices(spec);
  const group = await cgroups.make(spec.slot, spec.shape);
  const [program = "", ...args] = entering(group, command(spec, devices));
  const child = spawn(program, args, {
    detached: true,
    stdio: ["ignore", "ignore", "pipe", "pipe"],
    env: {},
  });
  const lastWords = keepLastWords(child);
  const pid = await childPid(child, lastWords);
  const process = identify(pid);
  if (!process) throw new Error(`QEMU ended at once: ${await lastWords()}`);
  await writeFile(`/proc/${pid}/oom_score_adj`, String(OOM_SCORE_ADJ));
  child.unref();
  return { process, lastWords };
}

/** Makes device nodes owned by the machine's uid, because hosts may restrict /dev/kvm and /dev/net/tun to a group. */
async function makeDevices(spec: JailSpec): Promise<{ source: string; target: string }[]> {
  const { dir, slot, shape, isOffline = false } = spec;
  const nodes = Object.entries({ ...(!isOffline && TUN), ...(shape.accelerator === "kvm" && KVM) });
  return Promise.all(
    nodes.map(async ([target, numbers]) => {
      const source = path.join(dir, path.basename(target));
      await rm(source, { force: true });
      await run("mknod", ["-m", "600", source, "c", ...numbers]);
      await chown(source, slot.uid, slot.uid);
      return { source, target };
    }),
  );
}

function command(spec: JailSpec, devices: { source: string; target: string }[]): string[] {
  const { slot, qemuRoot } = spec;
  return [
    ...["/usr/bin/prlimit", "--core=0", `--nofile=${OPEN_FILES}`, "--memlock=0", `--fsize=${spec.fileBytes}`],
    ...["/usr/bin/nsenter", `--net=/run/netns/${slot.netns}`],
    ...["/usr/bin/bwrap", "--ro-bind", qemuRoot, "/"],
    ...["--dev", "/dev", "--perms", "0755", "--dir", "/dev/net"],
    ...devices.flatMap(({ source, target }) => ["--dev-bind", source, target]),
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

/**
 * Keeps the last output on standard error, for error messages. It may arrive after the end of the process is known, so the
 * end of the output is waited for, but not for long: a process that is still alive does not end it.
 */
function keepLastWords(child: ChildProcess): () => Promise<string> {
  let kept = "";
  const isRead = new Promise<void>((resolve) => child.stderr?.once("close", resolve));
  child.stderr?.setEncoding("utf8");
  child.stderr?.on("data", (chunk: string) => {
    kept = (kept + chunk).slice(-STDERR_KEPT_BYTES);
  });
  child.stderr?.on("error", () => {});
  (child.stderr as { unref?: () => void } | null)?.unref?.();
  return async () => {
    await endsWithin(LAST_WORDS_MS, isRead);
    return kept.trim() || "no output";
  };
}

/** The pid of QEMU, which bubblewrap writes to descriptor 3 before it closes it. */
async function childPid(child: ChildProcess, lastWords: () => Promise<string>): Promise<number> {
  const failed = new Promise<never>((_, reject) => child.once("error", reject));
  const info = await Promise.race([text(child.stdio[3] as NodeJS.ReadableStream), failed]);
  const match = /"child-pid": (\d+)/.exec(info);
  if (!match) throw new Error(`the jail could not be built: ${await lastWords()}`);
  return Number(match[1]);
}

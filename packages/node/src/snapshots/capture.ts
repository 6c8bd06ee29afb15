/**
 * Captures a machine: freeze the user's processes, stop the guest, and keep device state, changed pages and disk as of
 * that one instant; then make them durable and publish (architecture.md section 3, security.md C8). The machine is
 * never hurt: whatever fails before the snapshot is durable, the guest goes on.
 */
import { chmod, chown, open, rm, stat, writeFile } from "node:fs/promises";
import path from "node:path";
import type { CaptureTimings } from "@vivarium/contract/node";
import { allOrNone } from "@vivarium/kit/all-or-none";
import { sleep, stopwatch } from "@vivarium/kit/clock";
import { crashPoint } from "@vivarium/kit/crash-point";
import { cloneFile, shareFile } from "../disks/clone.ts";
import type { DiskGate } from "../disks/gate.ts";
import { sharedBytes } from "../disks/shared-bytes.ts";
import { syncPath } from "../host/durable-file.ts";
import { letGo } from "../machines/guest-state.ts";
import type { Machine } from "../machines/machine.ts";
import { NodeError } from "../node-error.ts";
import { JAIL_PATHS } from "../qemu/arguments.ts";
import { mappingsOf } from "./changed-pages.ts";
import { makeUnpublished, removeFolder } from "./folder.ts";
import {
  describeFile,
  knownDevices,
  type Loadable,
  type Manifest,
  publishManifest,
  type SnapshotFile,
} from "./manifest.ts";
import { PageSums } from "./page-sums.ts";
import type { SumsThread } from "./sums-thread.ts";

const MIB = 1024 * 1024;
/** Device state of a microvm is some tens of KiB; a QEMU that writes much more is not ours any more. */
const STATE_LIMIT_BYTES = 64 * MIB;
/** Device state, tables and manifest, of a guest that changed no page. */
const LEAST_BYTES = 4 * MIB;
const LET_GO_WITHIN_MS = 5_000;
const SHARED = ["layer.qcow2", "base.raw"] as const;

export interface CaptureInput {
  machine: Machine;
  /** The machine's folder. */
  machineDir: string;
  /** What it was loaded from, as linked into its folder. */
  parent: Loadable;
  /** Folder of the snapshot to make. */
  target: string;
  spec: NonNullable<Manifest["spec"]>;
  /** Tells the journal what is to come. Durable before the instant that is captured. */
  announce: () => Promise<void>;
  /** The guest stays stopped and frozen once the snapshot is durable. */
  hold: boolean;
}

/** Stages in ms; filled as they end. */
type Stages = Omit<CaptureTimings, "publish">;

interface CaptureDeps {
  gate: DiskGate;
  sums: SumsThread;
}

export async function capture(deps: CaptureDeps, input: CaptureInput): Promise<Loadable> {
  const { machine, target } = input;
  let isStill = false;
  try {
    // How much it takes is known at the instant only. Where not even the least fits, no guest is stopped to find out.
    await deps.gate.check(LEAST_BYTES);
    const watch = stopwatch();
    isStill = true;
    const [parentSums, , isFrozen, sharedDisk] = await allOrNone([
      makeTarget(input),
      input.announce(),
      freezeGuest(input),
      // Before the disk is cloned: from then on all of its blocks are shared.
      sharedBytes(diskFile(input.machineDir)),
    ]);
    crashPoint("capture.freeze");
    const freeze = watch();
    const { stages, ownBytes, sums, release } = await takeInstant(deps, input, parentSums, freeze);
    try {
      if (!input.hold) {
        isStill = false;
        await letGo(machine);
      }
      crashPoint("capture.instant");
      watch();
      const manifest = await makeDurable(deps, input, {
        sums,
        ownBytes,
        sharedDisk,
        stages,
        isFrozen,
        watch,
      });
      return { dir: target, manifest };
    } finally {
      release();
    }
  } catch (error) {
    await removeFolder(target);
    // Waited for, so that the next capture does not meet it; a machine that does not answer holds up nobody for long.
    if (isStill && machine.isRunning)
      await Promise.race([letGo(machine).catch(() => {}), sleep(LET_GO_WITHIN_MS)]);
    throw error;
  }
}

/**
 * False for a guest that breaks its agent or hangs the freezer, which is no way to escape a pause: what it does stands
 * still with the machine. What is to become another machine must stand still first (security.md C8).
 */
async function freezeGuest({ machine, hold }: CaptureInput): Promise<boolean> {
  try {
    await machine.agent.command("/v1/freeze");
    return true;
  } catch (error) {
    if (hold && machine.isRunning && !machine.isOutOfSpace) return false;
    const cause = error as NodeError;
    if (cause.code !== "invalid" && cause.code !== "internal") throw cause;
    throw new NodeError("capture_failed", `the guest could not be frozen: ${cause.message}`, { cause });
  }
}

/** What does not depend on the instant is done before it. Returns the table of the memory as the parent has it. */
async function makeTarget({ machine, machineDir, parent, target }: CaptureInput): Promise<PageSums> {
  await makeUnpublished(target);
  for (const name of SHARED) await shareFile(path.join(parent.dir, name), path.join(target, name));
  // The folder is sealed: QEMU may fill this file and make no other.
  const state = await open(stateFile(machineDir), "w", 0o600);
  await state.close();
  await chown(stateFile(machineDir), machine.slot.uid, machine.slot.uid);
  await cloneFile(path.join(parent.dir, "mem"), path.join(target, "mem"));
  await chmod(path.join(target, "mem"), 0o600);
  const table = await PageSums.read(path.join(parent.dir, "mem.sums"));
  return table.child(parent.manifest.kind === "baseline");
}

const stateFile = (machineDir: string) => path.join(machineDir, "run/state");
const diskFile = (machineDir: string) => path.join(machineDir, "disk.qcow2");

/** Everything between stop and continue. Disk and memory are clones, so that what follows needs no standing still. */
async function takeInstant(
  deps: CaptureDeps,
  { machine, machineDir, parent, target }: CaptureInput,
  parentSums: PageSums,
  freeze: number,
) {
  const whole = stopwatch();
  await machine.qmp.execute("stop");
  crashPoint("capture.stop");
  const watch = stopwatch();
  const state = machine.qmp
    .execute("xen-save-devices-state", { filename: `${JAIL_PATHS.run}/state` })
    .then(() => watch());
  // Looked at only after the rest; a failure until then, such as the machine's end, must not count as nobody's.
  state.catch(() => {});
  const memoryFile = await stat(path.join(parent.dir, "mem"), { bigint: true });
  const mappings = mappingsOf(machine.process.pid, memoryFile);
  const { runs, bytes } = await deps.sums.findChanged(machine.process.pid, mappings);
  const release = await deps.gate.reserve(bytes + LEAST_BYTES);
  try {
    await cloneFile(diskFile(machineDir), path.join(target, "disk.qcow2"));
    const disk = watch();
    const { written, sums } = await deps.sums.writeChanged(
      { pid: machine.process.pid, runs, parent: path.join(parent.dir, "mem") },
      { file: path.join(target, "mem"), sums: parentSums },
    );
    const memory = watch();
    const stateMs = await state;
    await keepState(machineDir, target);
    const stages: Stages = { freeze, disk, memory, state: stateMs, stopped: whole() };
    return { stages, ownBytes: written, sums, release };
  } catch (error) {
    release();
    await state.catch(() => {});
    throw error;
  }
}

/** QEMU wrote it and cannot be trusted with what it is: a plain file of bounded size. */
async function keepState(machineDir: string, target: string): Promise<void> {
  const file = stateFile(machineDir);
  const { size } = await stat(file);
  if (size === 0 || size > STATE_LIMIT_BYTES) throw new Error(`the device state has ${size} bytes`);
  await cloneFile(file, path.join(target, "state"));
  await rm(file);
}

/** The daemon made it, so it is the daemon's already. A file is described once it is on disk: until then it may grow. */
async function seal({ sums }: CaptureDeps, target: string, name: SnapshotFile) {
  const file = path.join(target, name);
  await chmod(file, 0o444);
  await syncPath(file);
  return await describeFile(target, name, (each) => sums.crcOfFile(each));
}

async function makeDurable(
  deps: CaptureDeps,
  { parent, target, spec }: CaptureInput,
  {
    sums,
    ownBytes,
    sharedDisk,
    stages,
    isFrozen,
    watch,
  }: {
    sums: PageSums;
    ownBytes: number;
    sharedDisk: number;
    stages: Stages;
    isFrozen: boolean;
    watch: () => number;
  },
): Promise<Manifest> {
  const writeSums = async () => await writeFile(path.join(target, "mem.sums"), sums.toBytes());
  const [mem, state, disk, memSums] = await allOrNone([
    seal(deps, target, "mem"),
    seal(deps, target, "state"),
    seal(deps, target, "disk.qcow2"),
    writeSums().then(() => seal(deps, target, "mem.sums")),
  ]);
  crashPoint("capture.synced");
  const own = { mem, state, "disk.qcow2": disk, "mem.sums": memSums };
  const manifest: Manifest = {
    ...parent.manifest,
    kind: "snapshot",
    devices: knownDevices(parent.manifest),
    unfrozen: isFrozen ? undefined : true,
    created_at: new Date().toISOString(),
    own_bytes: ownBytes + state.bytes + memSums.bytes + Math.max(0, disk.blocks * 512 - sharedDisk),
    spec,
    timings: { ...stages, publish: watch() },
    files: { ...parent.manifest.files, ...own },
  };
  crashPoint("capture.manifest");
  await publishManifest(target, manifest);
  return manifest;
}

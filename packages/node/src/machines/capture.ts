/**
 * Captures a machine into a snapshot: freeze the user's processes, stop the guest, copy device state, changed pages and
 * disk as of that instant, then sync and publish. If a step fails before the snapshot is durable, the guest continues.
 */
import { chmod, chown, open, rm, stat, writeFile } from "node:fs/promises";
import path from "node:path";
import type { CaptureTimings } from "@vivarium/contract/node";
import { allOrNone } from "@vivarium/kit/all-or-none";
import { endsWithin, stopwatch } from "@vivarium/kit/clock";
import { crashPoint } from "@vivarium/kit/crash-point";
import { syncPath } from "@vivarium/kit/durable-file";
import { MIB } from "@vivarium/kit/sizes";
import { cloneFile, shareFile } from "../disks/clone.ts";
import { sharedBytes } from "../disks/shared-bytes.ts";
import { NodeError } from "../node-error.ts";
import { JAIL_PATHS } from "../qemu/arguments.ts";
import { mappingsOf } from "../snapshots/changed-pages.ts";
import { makeUnpublished, removeFolder } from "../snapshots/folder.ts";
import {
  describeFile,
  knownDevices,
  type Loadable,
  type Manifest,
  publishManifest,
  type SnapshotFile,
} from "../snapshots/manifest.ts";
import { PageSums } from "../snapshots/page-sums.ts";
import type { MachineDeps } from "./deps.ts";
import { thawAndContinue } from "./handshake.ts";
import type { Machine } from "./machine.ts";

/** Largest accepted device state: a microvm's has tens of KiB, and a QEMU that writes much more was taken over. */
const STATE_LIMIT_BYTES = 64 * MIB;
/** Disk space for device state, tables and manifest of a guest that changed no page. */
const LEAST_BYTES = 4 * MIB;
const THAW_WITHIN_MS = 5_000;
/** Files that the snapshot shares with its parent. */
const SHARED = ["layer.qcow2", "base.raw"] as const;

export interface CaptureInput {
  machine: Machine;
  machineDir: string;
  /** The snapshot that the machine was loaded from, as linked into its folder. */
  parent: Loadable;
  target: string;
  spec: NonNullable<Manifest["spec"]>;
  /**
   * With `hold`: records durably in the journal, before the guest is stopped, that the machine stays stopped once this
   * snapshot is complete.
   */
  announce: () => Promise<void>;
  /** The guest stays stopped and frozen once the snapshot is durable. */
  hold: boolean;
}

/** Milliseconds of the stages before the publication. */
type Stages = Omit<CaptureTimings, "publish">;

type CaptureDeps = Pick<MachineDeps, "gate" | "sums">;

export async function capture(deps: CaptureDeps, input: CaptureInput): Promise<Loadable> {
  const { machine, target } = input;
  let isStill = false;
  try {
    // Avoids stopping a guest whose smallest possible snapshot does not fit. The size is known only once it is stopped.
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
    const instant = await takeInstant(deps, input, parentSums, freeze);
    try {
      if (!input.hold) {
        isStill = false;
        await thawAndContinue(machine);
      }
      crashPoint("capture.instant");
      watch();
      const manifest = await makeDurable(deps, input, instant, { sharedDisk, isFrozen, watch });
      return { dir: target, manifest };
    } finally {
      instant.release();
    }
  } catch (error) {
    await removeFolder(target);
    // Awaited so that the next capture does not meet a thaw in progress, but only for a few seconds.
    if (isStill && machine.isRunning)
      await endsWithin(
        THAW_WITHIN_MS,
        thawAndContinue(machine).catch(() => {}),
      );
    throw error;
  }
}

/**
 * Freezes the user's processes. False if the guest broke its agent or hangs the freezer. Such a guest can be held all
 * the same: its processes stop with the machine. But its snapshot only continues as this machine, never as another.
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

/** Does the work that needs no stopped guest. Returns the parent's page sums as the snapshot's initial ones. */
async function makeTarget({ machine, machineDir, parent, target }: CaptureInput): Promise<PageSums> {
  await makeUnpublished(target);
  for (const name of SHARED) await shareFile(path.join(parent.dir, name), path.join(target, name));
  // The folder is sealed: QEMU may fill this file and create no other.
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

/** Everything between stop and continue. Disk and memory are cloned, so that the guest can run during the rest. */
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
    .then(stopwatch());
  // Awaited only after the other work; until then a rejection, such as at the machine's end, is not unhandled.
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

/** Copies the device state into the snapshot. QEMU is not trusted, so the size of the file that it wrote is checked. */
async function keepState(machineDir: string, target: string): Promise<void> {
  const file = stateFile(machineDir);
  const { size } = await stat(file);
  if (size === 0 || size > STATE_LIMIT_BYTES) throw new Error(`the device state has ${size} bytes`);
  await cloneFile(file, path.join(target, "state"));
  await rm(file);
}

/** Makes a file read-only, syncs it and describes it. Described last, because its blocks may grow until it is on disk. */
async function seal({ sums }: CaptureDeps, target: string, name: SnapshotFile) {
  const file = path.join(target, name);
  await chmod(file, 0o444);
  await syncPath(file);
  return await describeFile(target, name, (each) => sums.crcOfFile(each));
}

async function makeDurable(
  deps: CaptureDeps,
  { parent, target, spec }: CaptureInput,
  { sums, ownBytes, stages }: Awaited<ReturnType<typeof takeInstant>>,
  { sharedDisk, isFrozen, watch }: { sharedDisk: number; isFrozen: boolean; watch: () => number },
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

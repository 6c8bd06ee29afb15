/**
 * Captures a machine into a snapshot: freeze the user's processes, stop the guest, copy device state, changed pages and
 * disk as of that instant, then sync and publish. If a step fails before the snapshot is durable, the guest continues.
 */
import { chmod, chown, open, rm, stat, writeFile } from "node:fs/promises";
import path from "node:path";
import type { Frozen } from "@vivarium/contract/guest";
import type { CaptureTimings } from "@vivarium/contract/node";
import { allOrNone } from "@vivarium/kit/all-or-none";
import { endsWithin, stopwatch } from "@vivarium/kit/clock";
import { crashPoint } from "@vivarium/kit/crash-point";
import { syncPath } from "@vivarium/kit/durable-file";
import { MIB } from "@vivarium/kit/sizes";
import { cloneFile, shareFile } from "../disks/clone.ts";
import { sharedBytes } from "../disks/shared-bytes.ts";
import { gatherDuring, makeFifo } from "../host/fifo.ts";
import { NodeError } from "../node-error.ts";
import { JAIL_PATHS } from "../qemu/arguments.ts";
import { mappingsOf } from "../snapshots/changed-pages.ts";
import { makeUnpublished, removeFolder } from "../snapshots/folder.ts";
import {
  describeFile,
  entryOf,
  knownDevices,
  type Loadable,
  type Manifest,
  plainDiskOf,
  publishManifest,
  type SnapshotFile,
} from "../snapshots/manifest.ts";
import { PageSums } from "../snapshots/page-sums.ts";
import { STATE_LIMIT_BYTES, writeSealedBytes } from "../snapshots/sealed-bytes.ts";
import type { StateKey } from "../snapshots/state-key.ts";
import type { PackedMemory } from "../snapshots/sums-worker.ts";
import type { MachineDeps } from "./deps.ts";
import { thawAndContinue } from "./handshake.ts";
import type { Machine } from "./machine.ts";

/** Disk space for device state, tables and manifest of a guest that changed no page. */
export const LEAST_BYTES = 4 * MIB;
const THAW_WITHIN_MS = 5_000;
/** Files that the snapshot shares with its parent. */
export const SHARED = ["layer.qcow2", "base.raw"] as const;
const MEMORY = "mem";

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
  /** The key of a sealed machine, with which its snapshot is sealed. */
  stateKey?: StateKey | undefined;
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
    const [parentSums, , frozen, sharedDisk] = await allOrNone([
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
      const manifest = await makeDurable(deps, input, instant, { sharedDisk, frozen, watch });
      return { dir: target, manifest };
    } finally {
      instant.release();
    }
  } catch (error) {
    await removeFolder(target);
    if (isStill) await letContinue(machine);
    throw error;
  }
}

/**
 * Continues a guest whose capture failed. Awaited so that the next capture does not meet a thaw in progress, but only for a
 * few seconds.
 */
export async function letContinue(machine: Machine): Promise<void> {
  if (!machine.isRunning) return;
  await endsWithin(
    THAW_WITHIN_MS,
    thawAndContinue(machine).catch(() => {}),
  );
}

/** Undefined: the user's processes could not be frozen. `flushed`: the disk has all that they have written. */
type FrozenGuest = Frozen | undefined;

/**
 * Freezes the user's processes. Undefined if the guest broke its agent or hangs the freezer. Such a guest can be held all
 * the same: its processes stop with the machine. But its snapshot only continues as this machine, never as another.
 */
export async function freezeGuest({
  machine,
  hold,
}: Pick<CaptureInput, "machine" | "hold">): Promise<FrozenGuest> {
  try {
    return await machine.agent.freeze();
  } catch (error) {
    if (hold && machine.isRunning && !machine.isOutOfSpace) return undefined;
    const cause = error as NodeError;
    if (cause.code !== "invalid" && cause.code !== "internal") throw cause;
    throw new NodeError("capture_failed", `the guest could not be frozen: ${cause.message}`, { cause });
  }
}

/** Does the work that needs no stopped guest. Returns the parent's page sums as the snapshot's initial ones. */
async function makeTarget(input: CaptureInput): Promise<PageSums> {
  const { parent, target, stateKey } = input;
  await makeUnpublished(target);
  for (const name of SHARED) await shareFile(path.join(parent.dir, name), path.join(target, name));
  await makeStateFile(input);
  const [memory, under] = [path.join(parent.dir, MEMORY), plainDiskOf(parent.manifest)];
  if (stateKey) {
    await shareFile(memory, path.join(target, MEMORY));
    await shareFile(path.join(parent.dir, under), path.join(target, "under.qcow2"));
  } else {
    await cloneFile(memory, path.join(target, MEMORY));
    await chmod(path.join(target, MEMORY), 0o600);
  }
  const table = await PageSums.read(path.join(parent.dir, "mem.sums"));
  return table.child(parent.manifest.kind === "baseline");
}

/** The folder belongs to root: QEMU may fill this file, or this FIFO, and create no other. */
async function makeStateFile({ machine: { slot }, machineDir, stateKey }: CaptureInput): Promise<void> {
  const name = stateFile(machineDir);
  if (stateKey) {
    // A capture that failed before its instant left it.
    await rm(name, { force: true });
    return await makeFifo(name, slot.uid);
  }
  const state = await open(name, "w", 0o600);
  await state.close();
  await chown(name, slot.uid, slot.uid);
}

/** In the machine's folder. Its name in the jail is the same. */
export const STATE_FILE = "run/state";
const stateFile = (machineDir: string) => path.join(machineDir, STATE_FILE);
export const diskFile = (machineDir: string) => path.join(machineDir, "disk.qcow2");

/** Everything between stop and continue. Disk and memory are cloned, so that the guest can run during the rest. */
async function takeInstant(deps: CaptureDeps, input: CaptureInput, parentSums: PageSums, freeze: number) {
  const { machine, machineDir, parent, target } = input;
  const whole = stopwatch();
  await machine.qmp.execute("stop");
  crashPoint("capture.stop");
  const watch = stopwatch();
  const stateWatch = stopwatch();
  const state = saveState(input).then((keep) => ({ keep, ms: stateWatch() }));
  // Awaited only after the other work; until then a rejection, such as at the machine's end, is not unhandled.
  state.catch(() => {});
  let release = () => {};
  try {
    const memoryFile = await stat(path.join(parent.dir, MEMORY), { bigint: true });
    const mappings = mappingsOf(machine.process.pid, memoryFile);
    const { runs, bytes } = await deps.sums.findChanged(machine.process.pid, mappings);
    release = await deps.gate.reserve(bytes + LEAST_BYTES);
    await cloneFile(diskFile(machineDir), path.join(target, "disk.qcow2"));
    const disk = watch();
    const source = { pid: machine.process.pid, runs, parent: path.join(parent.dir, MEMORY) };
    const { written, sums } = await saveMemory(deps, input, source, parentSums);
    const memory = watch();
    const { keep, ms } = await state;
    await keep();
    const stages: Stages = { freeze, disk, memory, state: ms, stopped: whole() };
    return { stages, ownBytes: written, sums, release };
  } catch (error) {
    release();
    await state.catch(() => {});
    throw error;
  }
}

/** Saves pages of a process. Of a sealed machine they are all that differ from the memory below, which is not sealed. */
async function saveMemory(
  { sums }: CaptureDeps,
  { target, stateKey }: CaptureInput,
  source: PackedMemory,
  parentSums: PageSums,
): Promise<{ written: number; sums: PageSums }> {
  if (!stateKey)
    return await sums.writeChanged(source, { file: path.join(target, MEMORY), sums: parentSums });
  const sealing = { key: stateKey.derive("memory"), label: path.basename(target) };
  const made = await sums.writeSealed(source, { file: path.join(target, "mem.sealed"), ...sealing });
  return { written: made.fileBytes, sums: parentSums };
}

/**
 * Has QEMU write the device state, and returns how to copy it into the snapshot. QEMU is not trusted, so the size of what it
 * wrote is checked. A sealed machine's goes through a FIFO, and is in no file before it is sealed.
 */
async function saveState({
  machine,
  machineDir,
  target,
  stateKey,
}: CaptureInput): Promise<() => Promise<void>> {
  const file = stateFile(machineDir);
  const kept = path.join(target, "state");
  const write = () => machine.qmp.execute("xen-save-devices-state", { filename: `${JAIL_PATHS.run}/state` });
  const check = (bytes: number) => {
    if (bytes === 0 || bytes > STATE_LIMIT_BYTES) throw new Error(`the device state has ${bytes} bytes`);
  };
  if (stateKey) {
    const content = await gatherDuring(file, STATE_LIMIT_BYTES, write);
    check(content.length);
    const sealing = { key: stateKey.derive("device state"), label: path.basename(target) };
    writeSealedBytes(kept, sealing, content);
    return async () => {};
  }
  await write();
  return async () => {
    check((await stat(file)).size);
    await cloneFile(file, kept);
    await rm(file);
  };
}

/** Makes a file read-only, syncs it and describes it. Described last, because its blocks may grow until it is on disk. */
export async function settle({ sums }: Pick<MachineDeps, "sums">, target: string, name: SnapshotFile) {
  const file = path.join(target, name);
  await chmod(file, 0o444);
  await syncPath(file);
  return await describeFile(target, name, (each) => sums.crcOfFile(each));
}

async function makeDurable(
  deps: CaptureDeps,
  { parent, target, spec, stateKey }: CaptureInput,
  { sums, ownBytes, stages }: Awaited<ReturnType<typeof takeInstant>>,
  { sharedDisk, frozen, watch }: { sharedDisk: number; frozen: FrozenGuest; watch: () => number },
): Promise<Manifest> {
  const writeSums = async () => await writeFile(path.join(target, "mem.sums"), sums.toBytes());
  const [mem, state, disk, memSums] = await allOrNone([
    settle(deps, target, stateKey ? "mem.sealed" : MEMORY),
    settle(deps, target, "state"),
    settle(deps, target, "disk.qcow2"),
    writeSums().then(() => settle(deps, target, "mem.sums")),
  ]);
  crashPoint("capture.synced");
  const own = { ...(!stateKey && { mem }), state, "disk.qcow2": disk, "mem.sums": memSums };
  const under = entryOf(parent.manifest, plainDiskOf(parent.manifest));
  const sealed = stateKey && {
    ...{ key_id: stateKey.id, label: path.basename(target) },
    files: { "mem.sealed": mem, "under.qcow2": under },
  };
  const manifest: Manifest = {
    ...parent.manifest,
    kind: "snapshot",
    devices: knownDevices(parent.manifest),
    unfrozen: frozen ? undefined : true,
    flushed: frozen?.flushed || undefined,
    memory: undefined,
    created_at: new Date().toISOString(),
    own_bytes: ownBytes + state.bytes + memSums.bytes + Math.max(0, disk.blocks * 512 - sharedDisk),
    spec,
    timings: { ...stages, publish: watch() },
    files: { ...parent.manifest.files, ...own },
    sealed,
  };
  crashPoint("capture.manifest");
  await publishManifest(target, manifest);
  return manifest;
}

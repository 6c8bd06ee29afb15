/**
 * Saves a disk without memory and device state: of a machine, as of an instant at which the guest has written everything to it,
 * or of a snapshot that was made at such an instant. A machine that is started from it boots.
 */
import { truncate, writeFile } from "node:fs/promises";
import path from "node:path";
import type { SnapshotSpec } from "@vivarium/contract/node";
import { allOrNone } from "@vivarium/kit/all-or-none";
import { stopwatch } from "@vivarium/kit/clock";
import { crashPoint } from "@vivarium/kit/crash-point";
import { MIB } from "@vivarium/kit/sizes";
import { cloneFile, shareFile } from "../disks/clone.ts";
import { sharedBytes } from "../disks/shared-bytes.ts";
import { NodeError } from "../node-error.ts";
import { makeUnpublished, removeFolder } from "../snapshots/folder.ts";
import {
  entryOf,
  type FileEntry,
  knownDevices,
  type Loadable,
  type Manifest,
  plainDiskOf,
  publishManifest,
  type SnapshotFile,
  verifyLoadable,
} from "../snapshots/manifest.ts";
import { sumsOfZeros } from "../snapshots/page-sums.ts";
import type { StateKey } from "../snapshots/state-key.ts";
import { diskFile, freezeGuest, LEAST_BYTES, letContinue, SHARED, settle } from "./capture.ts";
import type { MachineDeps } from "./deps.ts";
import { thawAndContinue } from "./handshake.ts";
import type { Machine } from "./machine.ts";

interface Saving {
  /** The state whose files the snapshot shares: the one that the machine was loaded from, or the snapshot to copy. */
  parent: Loadable;
  target: string;
  spec: SnapshotSpec;
  /** The disk is sealed with it. */
  stateKey?: StateKey | undefined;
}

/** The machine continues, whether or not its disk could be saved. */
export async function captureDisk(
  deps: Pick<MachineDeps, "gate" | "sums">,
  input: Saving & { machine: Machine; machineDir: string },
): Promise<Loadable> {
  const { machine, machineDir, target } = input;
  const disk = diskFile(machineDir);
  let isStill = false;
  try {
    await deps.gate.check(LEAST_BYTES);
    const watch = stopwatch();
    isStill = true;
    const [frozen, , sharedDisk] = await allOrNone([
      freezeGuest({ machine, hold: false }),
      makeUnpublished(target),
      // Before the disk is cloned: from then on all of its blocks are shared.
      sharedBytes(disk),
    ]);
    if (!frozen?.flushed)
      throw new NodeError("capture_failed", "the guest did not write everything to its disk");
    crashPoint("capture_disk.freeze");
    const freeze = watch();
    await machine.qmp.execute("stop");
    crashPoint("capture_disk.stop");
    await cloneFile(disk, path.join(target, "disk.qcow2"));
    const stopped = watch();
    isStill = false;
    await thawAndContinue(machine);
    crashPoint("capture_disk.instant");
    watch();
    const { blocks, ...files } = await describeDisk(deps, input);
    const own_bytes = Math.max(0, blocks * 512 - sharedDisk);
    const timings = { freeze, disk: stopped, stopped, state: 0, memory: 0, publish: watch() };
    return await publish(target, manifestOf(input, { ...files, own_bytes, timings }));
  } catch (error) {
    await removeFolder(target);
    if (isStill) await letContinue(machine);
    throw error;
  }
}

/** The files that are shared are verified, so that damage is not copied. The caller has checked the state key. */
export async function copyDisk(deps: Pick<MachineDeps, "qemu" | "sums">, input: Saving): Promise<Loadable> {
  const { parent, target } = input;
  if (!parent.manifest.flushed)
    throw new NodeError("snapshot_unfrozen", "its disk may lack what was in memory when it was saved");
  await makeUnpublished(target);
  crashPoint("copy_disk.begin");
  await shareFile(path.join(parent.dir, "disk.qcow2"), path.join(target, "disk.qcow2"));
  const { blocks, ...files } = await describeDisk(deps, input, entryOf(parent.manifest, "disk.qcow2"));
  const manifest = manifestOf(input, { ...files, own_bytes: blocks * 512, timings: undefined });
  await verifyLoadable(deps, { dir: target, manifest });
  return await publish(target, manifest);
}

/** Completes the folder beside the disk, and describes its files. `known`: the entry of a disk that is shared. */
async function describeDisk(
  deps: Pick<MachineDeps, "sums">,
  { parent, target, stateKey }: Saving,
  known?: FileEntry,
): Promise<Pick<Manifest, "files" | "sealed"> & { blocks: number }> {
  const { manifest, dir } = parent;
  const share = (name: SnapshotFile, as: SnapshotFile = name) =>
    shareFile(path.join(dir, name), path.join(target, as));
  await makeEmptyMemory(target, manifest.mem_mb * MIB);
  for (const name of SHARED) await share(name);
  const under = plainDiskOf(manifest);
  if (stateKey) await share(under, "under.qcow2");
  const [mem, sums, disk] = await allOrNone([
    settle(deps, target, "mem"),
    settle(deps, target, "mem.sums"),
    known ?? settle(deps, target, "disk.qcow2"),
  ]);
  crashPoint("capture_disk.synced");
  const shared = Object.fromEntries(SHARED.map((name) => [name, entryOf(manifest, name)]));
  const sealed = stateKey && {
    ...{ key_id: stateKey.id, label: path.basename(target) },
    files: { "under.qcow2": entryOf(manifest, under) },
  };
  return { blocks: disk.blocks, sealed, files: { ...shared, mem, "mem.sums": sums, "disk.qcow2": disk } };
}

/** Memory of zeros, which a machine maps like any other, so that a capture finds all that it changed. It takes no space. */
async function makeEmptyMemory(target: string, bytes: number): Promise<void> {
  await writeFile(path.join(target, "mem"), "");
  await truncate(path.join(target, "mem"), bytes);
  await writeFile(path.join(target, "mem.sums"), sumsOfZeros(bytes).toBytes());
}

function manifestOf(
  { parent, spec }: Saving,
  own: Pick<Manifest, "files" | "sealed" | "own_bytes" | "timings">,
): Manifest {
  return {
    ...parent.manifest,
    kind: "snapshot",
    devices: knownDevices(parent.manifest),
    unfrozen: undefined,
    memory: false,
    flushed: true,
    created_at: new Date().toISOString(),
    spec,
    ...own,
  };
}

async function publish(target: string, manifest: Manifest): Promise<Loadable> {
  crashPoint("capture_disk.manifest");
  await publishManifest(target, manifest);
  return { dir: target, manifest };
}

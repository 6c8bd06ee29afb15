/** Prepares a machine's files, starts its QEMU and loads the device state. The guest does not run yet. */
import { chmod, chown, mkdir } from "node:fs/promises";
import path from "node:path";
import { GIB } from "@vivarium/kit/sizes";
import type { UndoStack } from "@vivarium/kit/undo-stack";
import { cloneFile, shareFile } from "../disks/clone.ts";
import { type Bind, type Qemu, startQemu } from "../host/jail.ts";
import { rootOf } from "../host/qemu-root.ts";
import type { Slot } from "../host/slots.ts";
import { JAIL_PATHS, loadArguments } from "../qemu/arguments.ts";
import { loadDeviceState } from "../qemu/qmp.ts";
import { assertFits, explainRefusal } from "../snapshots/fit.ts";
import { devicesOf, type Loadable, manifestPath, SNAPSHOT_FILES, shapeOf } from "../snapshots/manifest.ts";
import type { MachineDeps } from "./deps.ts";

const QMP_LIMIT_MS = 15_000;

/**
 * Links the parent's files, so that they live as long as the machine, and clones its disk for the machine. The disk's
 * backing files are named on QEMU's command line, not in its header.
 */
export async function prepareFiles(dir: string, slot: Slot, parent: Loadable): Promise<Loadable> {
  const own = path.join(dir, "parent");
  await mkdir(own, { mode: 0o711 });
  for (const name of SNAPSHOT_FILES) await shareFile(path.join(parent.dir, name), path.join(own, name));
  await shareFile(manifestPath(parent.dir), manifestPath(own));
  const disk = path.join(dir, "disk.qcow2");
  await cloneFile(path.join(own, "disk.qcow2"), disk);
  await chmod(disk, 0o600);
  await chown(disk, slot.uid, slot.uid);
  await mkdir(path.join(dir, "run"), { mode: 0o700 });
  await chown(path.join(dir, "run"), slot.uid, slot.uid);
  return { dir: own, manifest: parent.manifest };
}

type LaunchDeps = Pick<MachineDeps, "qemu" | "cgroups" | "verifications">;

interface Launch {
  dir: string;
  slot: Slot;
  parent: Loadable;
  isVerified: boolean;
}

/** Starts QEMU and loads the device state. Baselines are not verified again after the daemon's start. */
export async function launch(deps: LaunchDeps, undo: UndoStack, input: Launch): Promise<Qemu> {
  const { dir, parent, isVerified } = input;
  assertFits(parent.manifest);
  const verified = isVerified ? Promise.resolve() : deps.verifications.verify(parent);
  // Awaited only after QEMU has started; until then a rejection is not unhandled.
  verified.catch(() => {});
  const qemu = await start(deps, undo, input).catch(async (error) => {
    // If QEMU did not start, damage in the files is the better explanation.
    await verified;
    throw explainRefusal(parent.manifest, error);
  });
  await sealRunDir(dir);
  await verified;
  await loadDeviceState(qemu.qmp, JAIL_PATHS.state);
  return qemu;
}

/** Makes the folder of QEMU's sockets read-only to it, so that a later connection reaches the socket that it made now. */
async function sealRunDir(dir: string): Promise<void> {
  await chown(path.join(dir, "run"), 0, 0);
  await chmod(path.join(dir, "run"), 0o711);
}

async function start(deps: LaunchDeps, undo: UndoStack, { dir, slot, parent }: Launch): Promise<Qemu> {
  const { manifest } = parent;
  const shape = shapeOf(manifest);
  const from = (name: string) => path.join(parent.dir, name);
  const binds: Bind[] = [
    { source: from("mem"), target: JAIL_PATHS.memory, writable: false },
    { source: from("state"), target: JAIL_PATHS.state, writable: false },
    { source: from("layer.qcow2"), target: JAIL_PATHS.layer, writable: false },
    { source: from("base.raw"), target: JAIL_PATHS.base, writable: false },
    { source: path.join(dir, "disk.qcow2"), target: JAIL_PATHS.disk, writable: true },
    { source: path.join(dir, "run"), target: JAIL_PATHS.run, writable: true },
  ];
  const qemuRoot = rootOf(deps.qemu, manifest.qemu_build) ?? deps.qemu.dir;
  const fileBytes = 2 * manifest.disk_gb * GIB;
  const jail = { slot, dir, shape, qemuRoot, binds, fileBytes };
  const spec = { ...jail, arguments: loadArguments(shape, devicesOf(manifest)) };
  return startQemu(deps.cgroups, spec, undo, QMP_LIMIT_MS);
}

/** A machine's files and its QEMU process, up to loading the device state. The guest does not run yet. */
import { chmod, chown, mkdir } from "node:fs/promises";
import path from "node:path";
import { isAlive, killAndWait, type ProcessIdentity } from "@vivarium/kit/process-identity";
import { GIB, MIB } from "@vivarium/kit/sizes";
import type { UndoStack } from "@vivarium/kit/undo-stack";
import { cloneFile, shareFile } from "../disks/clone.ts";
import { removeCgroup } from "../host/cgroup.ts";
import { makeDevices } from "../host/devices.ts";
import { type Bind, startJailed } from "../host/jail.ts";
import { rootOf } from "../host/qemu-root.ts";
import type { Slot } from "../host/slots.ts";
import { JAIL_PATHS, loadArguments } from "../qemu/arguments.ts";
import { loadDeviceState, Qmp } from "../qemu/qmp.ts";
import { devicesOf, type Loadable, manifestPath, SNAPSHOT_FILES, shapeOf } from "../snapshots/manifest.ts";
import type { MachineDeps } from "./deps.ts";

const QMP_LIMIT_MS = 15_000;

/**
 * The parent's files, linked so that they live as long as the machine, and the machine's own disk: a clone of the
 * parent's. Backing files are named on the command line, not in the disk's header.
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

type LaunchDeps = Pick<MachineDeps, "qemu" | "verifications">;

interface Launch {
  dir: string;
  slot: Slot;
  parent: Loadable;
  isVerified: boolean;
}

/** Starts QEMU and loads the device state. Baselines are not verified again after the daemon's start. */
export async function launch(
  deps: LaunchDeps,
  undo: UndoStack,
  input: Launch,
): Promise<{ process: ProcessIdentity; qmp: Qmp }> {
  const { dir, parent, isVerified } = input;
  const verified = isVerified ? Promise.resolve() : deps.verifications.verify(parent);
  // Awaited only after QEMU has started. Until then a rejection must not count as unhandled.
  verified.catch(() => {});
  const process = await connect(deps, undo, input).catch(async (error) => {
    // If QEMU did not take the files, damage in them is the best explanation.
    await verified;
    throw error;
  });
  await sealRunDir(dir);
  await verified;
  await loadDeviceState(process.qmp, JAIL_PATHS.state);
  return process;
}

async function connect(deps: LaunchDeps, undo: UndoStack, input: Launch) {
  const { dir, slot } = input;
  const { identity: process, lastWords } = await startQemu(deps, input);
  undo.push("cgroup", () => removeCgroup(slot));
  undo.push("process", () => killAndWait(process));
  const qmp = await Qmp.connect(path.join(dir, "run/qmp.sock"), {
    limitMs: QMP_LIMIT_MS,
    alive: () => isAlive(process),
  }).catch((cause) => {
    throw new Error(`QEMU did not start: ${lastWords()}`, { cause });
  });
  undo.push("monitor", () => qmp.close());
  return { process, qmp };
}

/** Once QEMU has made its sockets it may not replace them: a later connection reaches the socket that it made now. */
async function sealRunDir(dir: string): Promise<void> {
  await chown(path.join(dir, "run"), 0, 0);
  await chmod(path.join(dir, "run"), 0o711);
}

async function startQemu(deps: LaunchDeps, { dir, slot, parent }: Launch) {
  const { manifest } = parent;
  const from = (name: string) => path.join(parent.dir, name);
  const binds: Bind[] = [
    { source: from("mem"), target: JAIL_PATHS.memory, writable: false },
    { source: from("state"), target: JAIL_PATHS.state, writable: false },
    { source: from("layer.qcow2"), target: JAIL_PATHS.layer, writable: false },
    { source: from("base.raw"), target: JAIL_PATHS.base, writable: false },
    { source: path.join(dir, "disk.qcow2"), target: JAIL_PATHS.disk, writable: true },
    { source: path.join(dir, "run"), target: JAIL_PATHS.run, writable: true },
  ];
  return startJailed({
    slot,
    qemuRoot: rootOf(deps.qemu, manifest.qemu_build) ?? deps.qemu.dir,
    binds,
    devices: await makeDevices(dir, slot, manifest.accelerator === "kvm" ? ["tun", "kvm"] : ["tun"]),
    fileBytes: 2 * manifest.disk_gb * GIB,
    memoryBytes: manifest.mem_mb * MIB,
    vcpus: manifest.vcpus,
    arguments: loadArguments(shapeOf(manifest), devicesOf(manifest)),
  });
}

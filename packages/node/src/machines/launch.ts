/** Prepares a machine's files, starts its QEMU and loads the device state. The guest does not run yet. */
import { chmod, chown, mkdir, stat } from "node:fs/promises";
import path from "node:path";
import type { VolumeSpec } from "@vivarium/contract/node";
import { GIB } from "@vivarium/kit/sizes";
import type { UndoStack } from "@vivarium/kit/undo-stack";
import { cloneFile, shareFile } from "../disks/clone.ts";
import { feedDuring, makeFifo } from "../host/fifo.ts";
import { type Bind, type Qemu, startQemu } from "../host/jail.ts";
import { tscKhz } from "../host/processor.ts";
import { rootOf } from "../host/qemu-root.ts";
import type { Slot } from "../host/slots.ts";
import { bootArguments, JAIL_PATHS, kernelArguments, loadArguments } from "../qemu/arguments.ts";
import { loadDeviceState } from "../qemu/qmp.ts";
import { mappingsOf } from "../snapshots/changed-pages.ts";
import { assertFits, explainRefusal } from "../snapshots/fit.ts";
import { kernelBinds } from "../snapshots/kernel-binds.ts";
import {
  boots,
  devicesOf,
  filesOf,
  type Loadable,
  type Manifest,
  manifestPath,
  plainDiskOf,
  shapeOf,
} from "../snapshots/manifest.ts";
import { readSealedBytes } from "../snapshots/sealed-bytes.ts";
import type { StateKey } from "../snapshots/state-key.ts";
import type { MachineDeps } from "./deps.ts";

const QMP_LIMIT_MS = 15_000;

/**
 * Links the parent's files, so that they live as long as the machine, and clones its disk for the machine. The disk's
 * backing files are named on QEMU's command line, not in its header. A machine with a state key that is not loaded from a sealed
 * state gets an empty encrypted disk above the parent's.
 */
export async function prepareFiles(
  { sums }: Pick<MachineDeps, "sums">,
  { dir, slot, parent, stateKey }: Omit<Launch, "isVerified" | "volume">,
): Promise<Loadable> {
  const own = path.join(dir, "parent");
  await mkdir(own, { mode: 0o711 });
  const { manifest } = parent;
  for (const name of filesOf(manifest)) await shareFile(path.join(parent.dir, name), path.join(own, name));
  await shareFile(manifestPath(parent.dir), manifestPath(own));
  const disk = path.join(dir, "disk.qcow2");
  const bytes = manifest.disk_gb * GIB;
  if (stateKey && !manifest.sealed)
    await sums.makeSealedDisk(disk, { bytes, passphrase: stateKey.diskPassphrase });
  else await cloneFile(path.join(own, "disk.qcow2"), disk);
  await chmod(disk, 0o600);
  await chown(disk, slot.uid, slot.uid);
  await mkdir(path.join(dir, "run"), { mode: 0o700 });
  await chown(path.join(dir, "run"), slot.uid, slot.uid);
  return { dir: own, manifest };
}

type LaunchDeps = Pick<MachineDeps, "config" | "qemu" | "cgroups" | "verifications" | "sums">;

interface Launch {
  dir: string;
  slot: Slot;
  parent: Loadable;
  isVerified: boolean;
  /** The machine is sealed with it. A sealed parent was sealed with the same key. */
  stateKey?: StateKey | undefined;
  /** The volume that the machine gets later: QEMU may write a file of its size. */
  volume?: VolumeSpec | undefined;
}

/**
 * Starts QEMU and loads the device state; a state without memory has none, and its guest will boot. Baselines of current
 * versions are verified before, once.
 */
export async function launch(deps: LaunchDeps, undo: UndoStack, input: Launch): Promise<Qemu> {
  const { dir, parent, isVerified, stateKey } = input;
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
  if (boots(parent.manifest)) return qemu;
  if (parent.manifest.sealed && stateKey) await loadSealed(deps, qemu, { ...input, stateKey });
  else await loadDeviceState(qemu.qmp, JAIL_PATHS.state);
  return qemu;
}

/**
 * Loads what is sealed into a QEMU that waits for its device state. The memory comes first: devices read their queues in it while
 * they are loaded. Neither memory nor device state is ever in a file.
 */
async function loadSealed(
  { sums }: LaunchDeps,
  { process: { pid }, qmp }: Qemu,
  { dir, parent, stateKey }: Launch & { stateKey: StateKey },
): Promise<void> {
  const label = parent.manifest.sealed?.label ?? "";
  const from = (name: string) => path.join(parent.dir, name);
  const mappings = mappingsOf(pid, await stat(from("mem"), { bigint: true }));
  const memory = { file: from("mem.sealed"), key: stateKey.derive("memory"), label };
  await sums.loadSealed(memory, pid, mappings);
  const state = readSealedBytes(from("state"), { key: stateKey.derive("device state"), label });
  await feedDuring(stateFifo(dir), state, () => loadDeviceState(qmp, JAIL_PATHS.state));
}

/** Through it QEMU gets a device state that was sealed. */
const stateFifo = (dir: string) => path.join(dir, "state");

/** Makes the folder of QEMU's sockets read-only to it, so that a later connection reaches the socket that it made now. */
async function sealRunDir(dir: string): Promise<void> {
  await chown(path.join(dir, "run"), 0, 0);
  await chmod(path.join(dir, "run"), 0o711);
}

async function start(deps: LaunchDeps, undo: UndoStack, input: Launch): Promise<Qemu> {
  const { config, qemu } = deps;
  const { dir, slot, parent, stateKey, volume } = input;
  const { manifest } = parent;
  const shape = shapeOf(manifest);
  const from = (name: string) => path.join(parent.dir, name);
  const binds: Bind[] = [
    { source: from("mem"), target: JAIL_PATHS.memory, writable: false },
    ...(boots(manifest) ? kernelBinds(config.imagesDir) : [await stateBind(input)]),
    { source: from("layer.qcow2"), target: JAIL_PATHS.layer, writable: false },
    { source: from("base.raw"), target: JAIL_PATHS.base, writable: false },
    { source: path.join(dir, "disk.qcow2"), target: JAIL_PATHS.disk, writable: true },
    { source: path.join(dir, "run"), target: JAIL_PATHS.run, writable: true },
  ];
  if (stateKey)
    binds.push({ source: from(plainDiskOf(manifest)), target: JAIL_PATHS.under, writable: false });
  const qemuRoot = rootOf(qemu, manifest.qemu_build) ?? qemu.dir;
  const fileBytes = Math.max(2 * manifest.disk_gb, volume?.size_gb ?? 0) * GIB;
  const jail = { slot, dir, shape, qemuRoot, binds, fileBytes };
  const spec = { ...jail, arguments: argumentsOf(manifest, stateKey !== undefined) };
  return startQemu(deps.cgroups, { ...spec, feed: await diskKeyFor(input) }, undo, QMP_LIMIT_MS);
}

function argumentsOf(manifest: Manifest, isSealed: boolean): string[] {
  const [shape, devices] = [shapeOf(manifest), devicesOf(manifest)];
  if (!boots(manifest)) return loadArguments(shape, devices, isSealed);
  const boot = { kernelArguments: kernelArguments(shape.accelerator, tscKhz()), devices };
  return bootArguments(shape, boot, isSealed);
}

/** The device state; a sealed one comes through a FIFO. */
async function stateBind({ dir, slot, parent }: Launch): Promise<Bind> {
  const { sealed } = parent.manifest;
  if (sealed) await makeFifo(stateFifo(dir), slot.uid);
  const source = sealed ? stateFifo(dir) : path.join(parent.dir, "state");
  return { source, target: JAIL_PATHS.state, writable: false };
}

/** The FIFO from which QEMU reads the passphrase of an encrypted disk. */
async function diskKeyFor({ dir, slot, stateKey }: Launch) {
  if (!stateKey) return undefined;
  const fifo = path.join(dir, JAIL_PATHS.diskKey);
  await makeFifo(fifo, slot.uid);
  return { fifo, content: stateKey.diskPassphrase };
}

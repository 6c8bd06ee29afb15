/** Makes a snapshot of a machine, or one that shares the files of an existing snapshot (`PUT /v1/snapshots/{id}`). */
import path from "node:path";
import type { SnapshotSpec } from "@vivarium/contract/node";
import { crashPoint } from "@vivarium/kit/crash-point";
import { shareFile } from "../disks/clone.ts";
import { NodeError } from "../node-error.ts";
import { makeUnpublished, removeFolder } from "../snapshots/folder.ts";
import {
  boots,
  filesOf,
  type Loadable,
  publishManifest,
  readManifest,
  verifyLoadable,
} from "../snapshots/manifest.ts";
import { requireStateKey, type StateKey } from "../snapshots/state-key.ts";
import { capture } from "./capture.ts";
import { captureDisk, copyDisk } from "./capture-disk.ts";
import type { MachineDeps } from "./deps.ts";
import { machineDir, markHeld, markRunning, parentDir, updateEntry } from "./journal.ts";
import type { Machine } from "./machine.ts";

export type SaveDeps = Pick<MachineDeps, "config" | "qemu" | "sums" | "snapshots" | "table" | "gate" | "log">;

/**
 * Repeating the call returns the same snapshot, also while it is being made. A snapshot of what is sealed needs its state key,
 * and is sealed too.
 */
export async function saveSnapshot(
  deps: SaveDeps,
  id: string,
  spec: SnapshotSpec,
  stateKey?: StateKey,
): Promise<Loadable> {
  const { snapshots } = deps;
  const published = await snapshots.get(id);
  const sealed = published?.manifest.sealed;
  if (sealed) requireStateKey(sealed.key_id, stateKey, `snapshot ${id}`);
  const inFlight = snapshots.saving.get(id);
  const knownSpec = inFlight?.spec ?? published?.manifest.spec;
  if (knownSpec !== undefined && JSON.stringify(knownSpec) !== JSON.stringify(spec))
    throw new NodeError("snapshot_conflict", `snapshot ${id} exists with other parameters`);
  if (inFlight) return await inFlight.done;
  if (published) return published;
  const done = save(deps, id, spec, stateKey).finally(() => snapshots.saving.delete(id));
  snapshots.saving.set(id, { spec, done });
  return await done;
}

async function save(
  deps: SaveDeps,
  id: string,
  spec: SnapshotSpec,
  stateKey: StateKey | undefined,
): Promise<Loadable> {
  try {
    if ("snapshot_id" in spec) return await copy(deps, id, spec, stateKey);
    const machine = deps.table.get(spec.machine_id);
    const { stateKeyId } = machine;
    // A machine that was started without one is not sealed, whatever the call brings.
    const key =
      stateKeyId === undefined ? undefined : requireStateKey(stateKeyId, stateKey, `machine ${machine.id}`);
    return await machine.queue.run(() => captureMachine(deps, { id, spec, machine, stateKey: key }));
  } catch (error) {
    // Throws if the machine has ended or was deleted, which explains the failure better than the error does.
    const machine = "machine_id" in spec ? deps.table.get(spec.machine_id) : undefined;
    if (machine?.isOutOfSpace) throw outOfSpace(error);
    if (error instanceof NodeError) throw error;
    deps.log.error({ snapshot: id, err: error }, "capture failed");
    const reason = isFull(error) ? "disk_pressure" : "capture_failed";
    throw new NodeError(reason, `the state could not be saved: ${(error as Error).message}`, {
      cause: error,
    });
  }
}

/** Refusal for a guest that QEMU stopped because the pool is full: it cannot freeze its processes. */
const outOfSpace = (cause?: unknown) =>
  new NodeError("disk_pressure", "the machine waits for free disk itself", { cause });

const isFull = (error: unknown) => ["ENOSPC", "EDQUOT"].includes((error as NodeJS.ErrnoException).code ?? "");

interface MachineCapture {
  id: string;
  spec: Extract<SnapshotSpec, { machine_id: string }>;
  machine: Machine;
  stateKey: StateKey | undefined;
}

async function captureMachine(
  deps: SaveDeps,
  { id, spec, machine, stateKey }: MachineCapture,
): Promise<Loadable> {
  const { config, table } = deps;
  // The machine may have ended while this waited in the queue, and another machine may have taken its name.
  if (table.get(machine.id) !== machine) throw new NodeError("machine_gone", "the machine has ended");
  if (machine.isOutOfSpace) throw outOfSpace();
  if (machine.isHeld) throw new NodeError("machine_held", "the machine stands still; continue it first");
  const parent = parentDir(config.dataDir, machine.id);
  const hold = spec.after === "hold";
  const input = {
    machine,
    machineDir: machineDir(config.dataDir, machine.id),
    parent: { dir: parent, manifest: await readManifest(parent) },
    target: deps.snapshots.dirOf(id),
    spec,
    stateKey,
  };
  if (spec.memory === false) return await captureDisk(deps, input);
  const made = await capture(deps, {
    ...input,
    announce: async () => {
      // Lets a restarted daemon keep the machine stopped if the snapshot is whole: later work would be lost.
      if (hold) await updateEntry(config, machine, { holding_for: id });
      crashPoint("capture.journal");
    },
    hold,
  }).catch(async (error) => {
    if (hold && machine.isRunning) await markRunning(config, machine);
    throw error;
  });
  crashPoint("capture.published");
  if (hold) await markHeld(config, machine).catch((err) => holdInMemory(deps, machine, err));
  deps.log.info({ machine: machine.id, snapshot: id, ...made.manifest.timings }, "machine captured");
  if (made.manifest.unfrozen)
    deps.log.warn({ machine: machine.id, snapshot: id }, "its processes could not be frozen for it");
  return made;
}

/** Used when the journal cannot be written, such as on a full disk. It names the intended hold, which a restart finds. */
function holdInMemory(deps: SaveDeps, machine: Machine, err: unknown): void {
  deps.log.warn({ machine: machine.id, err }, "the journal of a held machine could not be written");
  machine.entry = { ...machine.entry, state: "held" };
}

/**
 * Makes a snapshot that shares all files of another, or those of its disk: they are immutable. Verifies them, so that damage is
 * not copied.
 */
async function copy(
  deps: SaveDeps,
  id: string,
  spec: Extract<SnapshotSpec, { snapshot_id: string }>,
  stateKey: StateKey | undefined,
): Promise<Loadable> {
  const source = await deps.snapshots.find(spec.snapshot_id);
  const { sealed } = source.manifest;
  const key = sealed && requireStateKey(sealed.key_id, stateKey, `snapshot ${spec.snapshot_id}`);
  if (source.manifest.unfrozen)
    throw new NodeError(
      "snapshot_unfrozen",
      "its processes were not frozen when it was saved: wake it first",
    );
  const dir = deps.snapshots.dirOf(id);
  try {
    if (spec.memory === false && !boots(source.manifest))
      return await copyDisk(deps, { parent: source, target: dir, spec, stateKey: key });
    await makeUnpublished(dir);
    crashPoint("copy.begin");
    for (const name of filesOf(source.manifest))
      await shareFile(path.join(source.dir, name), path.join(dir, name));
    await verifyLoadable(deps, { dir, manifest: source.manifest });
    const manifest = await deps.snapshots.publishCopy(async () => {
      // Nothing was captured, so there are no timings. Files that two copies share count for the first copy.
      const own_bytes = (await deps.snapshots.hasCopy(source)) ? 0 : source.manifest.own_bytes;
      const created_at = new Date().toISOString();
      const made = { ...source.manifest, spec, own_bytes, created_at, timings: undefined };
      await publishManifest(dir, made);
      return made;
    });
    crashPoint("copy.done");
    return { dir, manifest };
  } catch (error) {
    await removeFolder(dir);
    if ((error as NodeJS.ErrnoException).code === "ENOENT") throw deps.snapshots.gone(source, error as Error);
    throw deps.snapshots.unloadable(source, error as Error);
  }
}

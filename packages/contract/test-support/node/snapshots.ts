/**
 * Snapshots of the fake node: copies of a machine's directory, made while its processes are stopped. Memory is not
 * saved: a machine that is started from a snapshot has the files but no commands.
 */
import { existsSync } from "node:fs";
import { cp, rm } from "node:fs/promises";
import { join } from "node:path";
import { type CaptureTimings, SnapshotId, SnapshotSpec, type SnapshotStatus } from "@vivarium/contract/node";
import { baselineIdOf, endArchiving, presentBaseline } from "./archives.ts";
import type { FakeMachine } from "./machine.ts";
import { alive, running } from "./machine-table.ts";
import { Refusal, valid } from "./refusal.ts";
import type { NodeState } from "./state.ts";
import { requireStateKey } from "./state-key.ts";

export interface FakeSnapshot {
  snapshot_id: string;
  spec: SnapshotSpec;
  template: string;
  size: string;
  bytes: number;
  created_at: string;
  /** When it was made or unpacked here, or a machine was last started from it. */
  usedAt: string | undefined;
  /** The baseline that it was made from. */
  baselineId: string;
  /** Absent for a copy of a snapshot, which captured nothing. */
  timings: CaptureTimings | undefined;
  /** A directory of this host; exists if the machine had files. */
  dir: string;
  /** Paths below `dir` of files outside /workspace, by guest path. */
  placed: Map<string, string>;
  isUnfit: boolean;
  /** Set if the snapshot is sealed. */
  stateKey: string | undefined;
  /** `false`: it was saved without memory. */
  memory: false | undefined;
}

export function snapshotId(id: string): string {
  if (SnapshotId.safeParse(id).success) return id;
  throw new Refusal("snapshot_not_found", "no snapshot of this name on this node");
}

export function statusOf(state: NodeState, snapshot: FakeSnapshot): SnapshotStatus {
  const { snapshot_id, template, size, bytes, created_at, timings, spec } = snapshot;
  const gaveWay = "machine_id" in spec && spec.after === "hold" && { machine_id: spec.machine_id };
  const { memory, usedAt: used_at } = snapshot;
  const sealed = snapshot.stateKey === undefined ? undefined : (true as const);
  const about = { template, size, bytes, created_at, used_at, timings, memory, sealed, ...gaveWay };
  return { snapshot_id, state: "ready", baseline_id: presentBaseline(state, snapshot), ...about };
}

/** Saves a snapshot; an equal call, even while in flight, returns the same snapshot, a different one is refused. */
export async function saveSnapshot(
  state: NodeState,
  id: string,
  body: unknown,
  stateKey?: string,
): Promise<FakeSnapshot> {
  const spec = valid(SnapshotSpec.safeParse(body));
  const { saving, snapshots } = state;
  const underWay = saving.get(id);
  const known = underWay ?? snapshots.get(id);
  if (known && JSON.stringify(known.spec) !== JSON.stringify(spec))
    throw new Refusal("snapshot_conflict", `snapshot ${id} exists with other parameters`);
  const published = snapshots.get(id);
  requireStateKey(published?.stateKey, stateKey, `snapshot ${id}`);
  if (underWay) return await underWay.done;
  if (published) return published;
  const { promise: hurried, resolve: hurry } = Promise.withResolvers<void>();
  const done = save(state, { id, spec, stateKey, hurried }).finally(() => saving.delete(id));
  saving.set(id, { spec, done, hurry });
  return await done;
}

interface Save<Spec = SnapshotSpec> {
  id: string;
  spec: Spec;
  stateKey: string | undefined;
  hurried: Promise<void>;
}

async function save(state: NodeState, { id, spec, stateKey, hurried }: Save): Promise<FakeSnapshot> {
  const dir = join(state.folder, id);
  try {
    const snapshot =
      "snapshot_id" in spec
        ? await copy(state, { id, spec, stateKey, hurried })
        : await capture(state, { id, spec, stateKey, hurried });
    state.snapshots.set(id, snapshot);
    return snapshot;
  } catch (error) {
    await rm(dir, { recursive: true, force: true });
    // If the machine has ended or was deleted meanwhile, that is the reported cause, whichever step failed.
    if ("machine_id" in spec) alive(state, spec.machine_id);
    throw error;
  }
}

async function capture(
  state: NodeState,
  { id, spec, stateKey, hurried }: Save<Extract<SnapshotSpec, { machine_id: string }>>,
): Promise<FakeSnapshot> {
  const dir = join(state.folder, id);
  const machine = alive(state, spec.machine_id);
  requireStateKey(machine.stateKey, stateKey, `machine ${spec.machine_id}`);
  return await machine.exclusive(async () => {
    running(state, spec.machine_id);
    await machine.whileAlive(Promise.race([state.onSnapshot(id, spec), hurried]));
    machine.signalAll("SIGSTOP");
    await copyFiles(machine.dir, dir);
    alive(state, spec.machine_id);
    if (spec.after === "continue") machine.signalAll("SIGCONT");
    else {
      machine.state = "held";
      machine.breakOff();
    }
    const placed = [...machine.placed].map(
      ([guest, host]) => [guest, host.slice(machine.dir.length)] as const,
    );
    const { template, size } = machine.spec;
    return {
      snapshot_id: id,
      spec,
      template,
      size,
      bytes: 4096,
      created_at: new Date().toISOString(),
      usedAt: new Date().toISOString(),
      baselineId: machine.baselineId ?? baselineIdOf(state, template, size),
      timings: { freeze: 1, state: 2, memory: 3, disk: 4, publish: 5, stopped: 6 },
      dir,
      placed: new Map(placed),
      isUnfit: machine.isUnfit,
      stateKey: machine.stateKey,
      memory: spec.memory,
    };
  });
}

async function copy(
  state: NodeState,
  { id, spec, stateKey, hurried }: Save<Extract<SnapshotSpec, { snapshot_id: string }>>,
): Promise<FakeSnapshot> {
  await Promise.race([state.onSnapshot(id, spec), hurried]);
  const source = findSnapshot(state, spec.snapshot_id);
  requireStateKey(source.stateKey, stateKey, `snapshot ${spec.snapshot_id}`);
  const dir = join(state.folder, id);
  await copyFiles(source.dir, dir);
  const created_at = new Date().toISOString();
  const memory = spec.memory ?? source.memory;
  const usedAt = created_at;
  return { ...source, snapshot_id: id, spec, dir, created_at, usedAt, timings: undefined, memory };
}

async function copyFiles(from: string, to: string): Promise<void> {
  if (existsSync(from)) await cp(from, to, { recursive: true, verbatimSymlinks: true });
}

/** Finds a complete snapshot; one that is still being made does not count. */
export function findSnapshot({ snapshots, info }: NodeState, id: string): FakeSnapshot {
  const snapshot = snapshots.get(id);
  if (!snapshot) throw new Refusal("snapshot_not_found", `no snapshot ${id} on this node`);
  if (info.damaged_snapshots?.includes(id))
    throw new Refusal("snapshot_damaged", "the saved state cannot be used: it was found damaged before");
  return snapshot;
}

export function listSnapshots(state: NodeState): SnapshotStatus[] {
  const { snapshots, info } = state;
  const whole = [...snapshots.values()].filter((one) => !info.damaged_snapshots?.includes(one.snapshot_id));
  return whole.map((one) => statusOf(state, one));
}

export async function deleteSnapshot(state: NodeState, id: string): Promise<void> {
  const { snapshots, saving } = state;
  await endArchiving(state, id);
  const underWay = saving.get(id);
  underWay?.hurry();
  await underWay?.done.catch(() => {});
  const snapshot = snapshots.get(id);
  snapshots.delete(id);
  if (snapshot) await rm(snapshot.dir, { recursive: true, force: true });
}

export async function loadSnapshot(snapshot: FakeSnapshot, machine: FakeMachine): Promise<void> {
  await copyFiles(snapshot.dir, machine.dir);
  for (const [guestPath, inside] of snapshot.placed) machine.placed.set(guestPath, join(machine.dir, inside));
  machine.isUnfit = snapshot.isUnfit;
  machine.baselineId = snapshot.baselineId;
  snapshot.usedAt = new Date().toISOString();
}

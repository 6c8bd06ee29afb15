/**
 * Saved states of the fake node: copies of a machine's directory, taken while its processes are stopped. Memory is not
 * saved: a machine that is started from one has the files and none of the commands.
 */
import { cp, rm } from "node:fs/promises";
import { join } from "node:path";
import { type MachineStatus, SnapshotId, SnapshotSpec, type SnapshotStatus } from "@vivarium/contract/node";
import {
  alive,
  breakOff,
  type FakeMachine,
  type FakeState,
  found,
  Refusal,
  running,
  valid,
} from "./fake-machine.ts";

export interface FakeSnapshot {
  spec: SnapshotSpec;
  status: SnapshotStatus;
  dir: string;
  /** Guest path → path below `dir` of files outside /workspace. */
  placed: Map<string, string>;
  isUnfit: boolean;
  done: Promise<void>;
}

const TIMINGS = { freeze: 0, state: 0, memory: 0, disk: 0, publish: 0, stopped: 0 };

export async function saveSnapshot(state: FakeState, id: string, body: unknown): Promise<SnapshotStatus> {
  if (!SnapshotId.safeParse(id).success)
    throw new Refusal("snapshot_not_found", "no snapshot of this name on this node");
  const spec = valid(SnapshotSpec.safeParse(body));
  const known = state.snapshots.get(id);
  if (known) {
    if (JSON.stringify(known.spec) !== JSON.stringify(spec))
      throw new Refusal("snapshot_conflict", "the snapshot exists with other parameters");
    await known.done;
    return known.status;
  }
  const snapshot = "snapshot_id" in spec ? copy(state, id, spec) : capture(state, id, spec);
  state.snapshots.set(id, snapshot);
  try {
    await snapshot.done;
    snapshot.status = { ...snapshot.status, state: "ready" };
    return snapshot.status;
  } catch (error) {
    state.snapshots.delete(id);
    await rm(snapshot.dir, { recursive: true, force: true });
    throw error;
  }
}

function capture(
  state: FakeState,
  id: string,
  spec: Extract<SnapshotSpec, { machine_id: string }>,
): FakeSnapshot {
  const machine = alive(state, spec.machine_id);
  const placed = [...machine.placed].map(([guest, host]) => [guest, host.slice(machine.dir.length)] as const);
  const { template, size } = machine.spec;
  const from = { template, size, placed: new Map(placed), isUnfit: machine.isUnfit };
  const dir = join(state.dir, id);
  const done = inTurn(machine, async () => {
    running(state, spec.machine_id);
    signalAll(machine, "SIGSTOP");
    await cp(machine.dir, dir, { recursive: true, verbatimSymlinks: true });
    alive(state, spec.machine_id);
    if (spec.after === "continue") return signalAll(machine, "SIGCONT");
    machine.status = { ...machine.status, state: "held" };
    breakOff(machine);
  });
  return fresh(id, spec, dir, from, done);
}

function copy(state: FakeState, id: string, spec: { snapshot_id: string }): FakeSnapshot {
  const source = findSnapshot(state, spec.snapshot_id);
  const dir = join(state.dir, id);
  const { template, size } = source.status;
  const from = { template, size, placed: source.placed, isUnfit: source.isUnfit };
  return fresh(id, spec, dir, from, cp(source.dir, dir, { recursive: true, verbatimSymlinks: true }));
}

function fresh(
  id: string,
  spec: SnapshotSpec,
  dir: string,
  from: { template: string; size: string; placed: Map<string, string>; isUnfit: boolean },
  done: Promise<void>,
): FakeSnapshot {
  const { template, size, placed, isUnfit } = from;
  const created_at = new Date().toISOString();
  const gaveWay = "machine_id" in spec && spec.after === "hold" && { machine_id: spec.machine_id };
  const status = { snapshot_id: id, template, size, bytes: 4096, created_at, timings: TIMINGS, ...gaveWay };
  return { spec, status: { ...status, state: "saving" }, dir, placed, isUnfit, done };
}

/** The snapshot, whole; one that is still being made is none yet. */
export function findSnapshot(state: FakeState, id: string): FakeSnapshot {
  const snapshot = state.snapshots.get(id);
  if (snapshot?.status.state === "ready") return snapshot;
  throw new Refusal("snapshot_not_found", "no such snapshot on this node");
}

export function listSnapshots(state: FakeState): SnapshotStatus[] {
  return [...state.snapshots.values()].map(({ status }) => status).filter(({ state }) => state === "ready");
}

export async function deleteSnapshot(state: FakeState, id: string): Promise<void> {
  const snapshot = state.snapshots.get(id);
  await snapshot?.done.catch(() => {});
  state.snapshots.delete(id);
  if (snapshot) await rm(snapshot.dir, { recursive: true, force: true });
}

export async function loadSnapshot(snapshot: FakeSnapshot, machine: FakeMachine): Promise<void> {
  await cp(snapshot.dir, machine.dir, { recursive: true, verbatimSymlinks: true });
  for (const [guestPath, inside] of snapshot.placed) machine.placed.set(guestPath, join(machine.dir, inside));
}

export async function continueMachine(state: FakeState, machineId: string): Promise<MachineStatus> {
  const machine = alive(state, machineId);
  return await inTurn(machine, async () => {
    if (found(state, machineId).status.state === "held") {
      signalAll(machine, "SIGCONT");
      machine.status = { ...machine.status, state: "running" };
    }
    return machine.status;
  });
}

function inTurn<T>(machine: FakeMachine, work: () => Promise<T>): Promise<T> {
  const mine = machine.turn.then(work);
  machine.turn = mine.catch(() => {});
  return mine;
}

function signalAll(machine: FakeMachine, signal: "SIGSTOP" | "SIGCONT"): void {
  for (const pgid of machine.groups) {
    try {
      process.kill(-pgid, signal);
    } catch {
      // The group has ended already.
    }
  }
}

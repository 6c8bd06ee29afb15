/** Starts, continues and ends the machines of the fake node. */
import { existsSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { type MachineStatus, StartSpec } from "@vivarium/contract/node";
import { canStartBuild } from "./builds.ts";
import { FakeMachine } from "./machine.ts";
import { alive } from "./machine-table.ts";
import { Refusal, valid } from "./refusal.ts";
import { type FakeSnapshot, findSnapshot, loadSnapshot } from "./snapshots.ts";
import type { NodeState } from "./state.ts";
import { requireStateKey } from "./state-key.ts";
import { holdVolume, releaseVolumes } from "./volumes.ts";

/** Starts a machine; an equal start, even while in flight, returns the same machine, a different one is refused. */
export async function startMachine(
  state: NodeState,
  id: string,
  body: unknown,
  stateKey?: string,
): Promise<MachineStatus> {
  const spec = valid(StartSpec.safeParse(body));
  await state.stopping.get(id);
  const machine = state.machines.get(id);
  if (machine?.state === "ended") throw new Refusal("machine_gone", machine.reason);
  const known = machine ?? state.starting.get(id);
  if (known) {
    requireStateKey(known.stateKey, stateKey, `machine ${id}`);
    if (!isSameMachine(known.spec, spec))
      throw new Refusal("machine_conflict", `machine ${id} exists with other parameters`);
    const found = await (known instanceof FakeMachine ? known : known.done);
    catchUp(state, id, spec);
    return found.status;
  }
  const { promise: hurried, resolve: hurry } = Promise.withResolvers<void>();
  const done = start(state, { id, spec, stateKey, hurried }).finally(() => state.starting.delete(id));
  state.starting.set(id, { spec, stateKey, done, hurry });
  return (await done).status;
}

/** Compares without the network, which is not part of a machine's identity. */
function isSameMachine(one: StartSpec, other: StartSpec): boolean {
  return JSON.stringify({ ...one, network: undefined }) === JSON.stringify({ ...other, network: undefined });
}

/** Applies the network of a repeated start if it is newer. */
function catchUp({ networks }: NodeState, id: string, { network }: StartSpec): void {
  if (network && network.generation > (networks.get(id)?.generation ?? 0)) networks.set(id, network);
}

async function start(
  state: NodeState,
  {
    id,
    spec,
    stateKey,
    hurried,
  }: { id: string; spec: StartSpec; stateKey: string | undefined; hurried: Promise<void> },
): Promise<FakeMachine> {
  await Promise.race([state.onStart(id, spec), hurried]);
  const snapshot = spec.snapshot_id === undefined ? undefined : findSnapshot(state, spec.snapshot_id);
  requireStateKey(snapshot?.stateKey, stateKey, `snapshot ${spec.snapshot_id}`);
  assertCanStart(state, spec, snapshot);
  const machine = Object.assign(state.newMachine(id, spec), { stateKey });
  if (snapshot) await loadSnapshot(snapshot, machine);
  if (spec.hold) machine.state = "held";
  else holdVolume(state, machine);
  state.machines.set(id, machine);
  if (spec.network) state.networks.set(id, spec.network);
  return machine;
}

function assertCanStart(state: NodeState, spec: StartSpec, snapshot: FakeSnapshot | undefined): void {
  const { info } = state;
  const [template, version] = spec.template.split("@");
  const isBaseline = (one: (typeof info.baselines)[number]) =>
    one.template === template && one.size === spec.size && (version ?? one.version) === one.version;
  if (snapshot && snapshot.size !== spec.size)
    throw new Refusal("invalid", `size: the snapshot is of size ${snapshot.size}`);
  if (snapshot?.memory === false && spec.resume)
    throw new Refusal("invalid", "resume: the snapshot has no memory, so no machine continues from it");
  if (!snapshot && !info.baselines.some(isBaseline) && !canStartBuild(state, spec.template, spec.size))
    throw new Refusal("template_unavailable", `no baseline of ${spec.template} in size ${spec.size}`);
  if (info.has_disk_room === false) throw new Refusal("disk_pressure", "not enough free disk");
  if (snapshot?.isUnfit && !spec.resume)
    throw new Refusal("guest_unfit", "it does not confirm that it goes on: it is unfit");
}

export function continueMachine(state: NodeState, id: string): Promise<MachineStatus> {
  const machine = alive(state, id);
  return machine.exclusive(async () => {
    if (machine.state === "held") {
      await machine.whileAlive(state.onContinue(id));
      holdVolume(state, machine);
      machine.signalAll("SIGCONT");
      machine.state = "running";
    }
    return machine.status;
  });
}

export function stopMachine(state: NodeState, id: string): Promise<void> {
  const underWay = state.stopping.get(id);
  if (underWay !== undefined) return underWay;
  const done = stop(state, id).finally(() => state.stopping.delete(id));
  state.stopping.set(id, done);
  return done;
}

async function stop(state: NodeState, id: string): Promise<void> {
  const starting = state.starting.get(id);
  starting?.hurry();
  await starting?.done.catch(() => {});
  await state.onDelete(id);
  const machine = state.machines.get(id);
  state.machines.delete(id);
  state.networks.delete(id);
  releaseVolumes(state, id);
  machine?.end("it was deleted");
  // By now all calls in flight have failed; this waits until they have left nothing behind.
  await machine?.exclusive(async () => {});
  const dir = join(state.folder, id);
  if (existsSync(dir)) await rm(dir, { recursive: true, force: true, maxRetries: 5 });
}

/**
 * Starts a machine from its template's baseline or from a snapshot: journal, slot, network, disk, QEMU, load or boot,
 * continue, handshake. A machine that is to be held is stopped after that, and has proven that it can continue. Each
 * acquisition pushes its release; a failure at any step leaves nothing behind.
 */
import { rename } from "node:fs/promises";
import path from "node:path";
import type { StartSpec } from "@vivarium/contract/node";
import { allOrNone } from "@vivarium/kit/all-or-none";
import { stopwatch } from "@vivarium/kit/clock";
import { crashPoint } from "@vivarium/kit/crash-point";
import { killAndWait } from "@vivarium/kit/process-identity";
import { MIB } from "@vivarium/kit/sizes";
import { UndoStack } from "@vivarium/kit/undo-stack";
import { AgentClient } from "../guest/client.ts";
import { OPEN_NETWORK } from "../network/kernel-policy.ts";
import { NodeError } from "../node-error.ts";
import { baselineKey } from "../snapshots/find-baselines.ts";
import { boots, isolationOf, type Loadable, type Manifest, shapeOf } from "../snapshots/manifest.ts";
import { requireStateKey, type StateKey } from "../snapshots/state-key.ts";
import { bootLimits, waitForAgent } from "../snapshots/wait-for-agent.ts";
import { excess, freeMemory, readyOrLoaded } from "./admission.ts";
import { attachVolume, requireSpareDisk } from "./attach-volume.ts";
import type { MachineDeps } from "./deps.ts";
import { handshake } from "./handshake.ts";
import { inTime } from "./in-time.ts";
import { type JournalEntry, machineDir, readEntry, removeEntry, writeEntry } from "./journal.ts";
import { launch, prepareFiles } from "./launch.ts";
import { Machine } from "./machine.ts";
import { clean } from "./stop.ts";
import type { WarmMachine } from "./warm-machine.ts";

/** Time limit of a start with a warm machine that has run; it usually needs some milliseconds. */
const WARM_LIMIT_MS = 3_000;
/** How long a start waits for the gateway to confirm the machine, which it usually does before the handshake ends. */
const GATEWAY_KNOWS_MS = 1_000;
/** Disk space that each start reserves until it ends. */
export const DISK_PER_START_BYTES = 64 * MIB;

/** Files to load. `isVerified`: a baseline of the current version, which this daemon has verified. */
type Source = Loadable & { isVerified: boolean };

/**
 * Repeating the start returns the same machine, also while the first start is in progress. With a state key the machine is
 * sealed.
 */
export async function startMachine(
  deps: MachineDeps,
  id: string,
  spec: StartSpec,
  stateKey?: StateKey,
): Promise<Machine> {
  const { table } = deps;
  await table.stopping.get(id);
  const known = table.running.get(id) ?? table.starting.get(id);
  if (known) {
    if (known.stateKeyId !== undefined) requireStateKey(known.stateKeyId, stateKey, `machine ${id}`);
    if (!isSameMachine(known.spec, spec)) {
      throw new NodeError("machine_conflict", `machine ${id} exists with other parameters`);
    }
    const machine = await ("done" in known ? known.done : known);
    await catchUp(deps, id, spec);
    return machine;
  }
  const ended = table.ended.get(id);
  if (ended) throw new NodeError("machine_gone", ended.reason);
  const wanted: Wanted = { id, spec, stateKey, unwanted: new AbortController() };
  const done = admitAndStart(deps, wanted).finally(() => table.starting.delete(id));
  table.starting.set(id, { spec, stateKeyId: stateKey?.id, done, unwanted: wanted.unwanted });
  return done;
}

interface Wanted {
  id: string;
  spec: StartSpec;
  stateKey: StateKey | undefined;
  /** Aborted when the machine is deleted before it is started: a boot takes long. */
  unwanted: AbortController;
}

/** Compares specs without their network, which may have changed since the start. */
function isSameMachine(one: StartSpec, other: StartSpec): boolean {
  return JSON.stringify({ ...one, network: undefined }) === JSON.stringify({ ...other, network: undefined });
}

/** Applies the newer network policy that a repeated start may carry. */
async function catchUp({ network }: MachineDeps, id: string, { network: wanted }: StartSpec): Promise<void> {
  const { machine } = network.networks.all().find((one) => one.machine?.machineId === id) ?? {};
  if (wanted && machine && wanted.generation > machine.spec.generation)
    await network.networks.change(id, wanted);
}

/** Refusals whose cause an operator has to see: it is this host's, or the machine's own. */
const NOTED: NodeError["code"][] = ["snapshot_unfit", "agent_unavailable"];

async function admitAndStart(deps: MachineDeps, wanted: Wanted): Promise<Machine> {
  const { id } = wanted;
  await removeLeftover(deps, id);
  const parent = await findParent(deps, wanted);
  if (wanted.spec.volume) requireSpareDisk(parent.manifest);
  const release = await admit(deps);
  const undo = new UndoStack();
  try {
    const machine = await start(deps, undo, wanted, parent);
    undo.release();
    deps.table.add(machine);
    return machine;
  } catch (error) {
    await undo
      .unwind()
      .catch((failure) => deps.log.error({ machine: id, err: failure }, "undo of a start failed"));
    if (!(error instanceof NodeError) || NOTED.includes(error.code))
      deps.log.error({ machine: id, err: error }, "start failed");
    if (error instanceof NodeError) throw error;
    throw new NodeError("internal", "the machine could not be started", { cause: error });
  } finally {
    release();
  }
}

/** Removes what an earlier start under this id left: its entry names a slot that the next entry would not. */
async function removeLeftover(deps: MachineDeps, id: string): Promise<void> {
  const { config, table } = deps;
  if (!table.leftover.has(id)) return;
  const entry = await readEntry(config.dataDir, id);
  if (entry) await clean(deps, entry);
  else await removeEntry(config.dataDir, id);
  table.leftover.delete(id);
}

async function findParent(deps: MachineDeps, { spec, stateKey }: Wanted): Promise<Source> {
  if (spec.snapshot_id !== undefined) {
    const snapshot = await deps.snapshots.find(spec.snapshot_id);
    const { sealed } = snapshot.manifest;
    if (sealed) requireStateKey(sealed.key_id, stateKey, `snapshot ${spec.snapshot_id}`);
    if (snapshot.manifest.size !== spec.size)
      throw new NodeError("invalid", `size: the snapshot is of size ${snapshot.manifest.size}`);
    if (spec.resume && boots(snapshot.manifest))
      throw new NodeError("invalid", "resume: the snapshot has no memory, so no machine continues from it");
    await deps.snapshots.noteUse(spec.snapshot_id);
    return { ...snapshot, isVerified: false };
  }
  const baseline = await deps.baselines.findToLoad(baselineKey(spec.template, spec.size));
  if (baseline) return baseline;
  throw new NodeError(
    "template_unavailable",
    `no baseline for template ${spec.template} in size ${spec.size}`,
  );
}

/** Reserves disk and returns the release. Memory is checked later, only if a machine has to be loaded. */
async function admit({ table, config, gate }: MachineDeps): Promise<() => void> {
  const lack = excess(table.count, config.maxMachines);
  if (lack !== undefined) throw new NodeError("no_capacity", lack);
  return await gate.reserve(DISK_PER_START_BYTES);
}

async function start(deps: MachineDeps, undo: UndoStack, wanted: Wanted, source: Source): Promise<Machine> {
  const { pool, table } = deps;
  const { id, spec, stateKey } = wanted;
  return await readyOrLoaded({
    async ready() {
      // The disk of a warm machine is not encrypted, and its QEMU may write no larger file than its own disk.
      const warm = isNew(spec) && !stateKey && !spec.volume ? pool.take(source.dir) : undefined;
      if (!warm) return undefined;
      const call: WarmStart = { warm, source, id, spec };
      return warm.hasRun ? await startWarmed(deps, undo, call) : await startPreloaded(deps, undo, call);
    },
    lack: () => freeMemory(() => table.starting.size, pool),
    load: async () => {
      const loaded = await load(deps, undo, { ...wanted, source });
      if (boots(source.manifest)) await boot(loaded, wanted.unwanted.signal);
      return await continueAndHandshake(deps, undo, loaded);
    },
  });
}

interface WarmStart {
  warm: WarmMachine;
  source: Loadable;
  id: string;
  spec: StartSpec;
}

/** Whether a warm machine may be used: a session's own state is loaded once, so there is none of it. */
const isNew = ({ resume, hold }: StartSpec) => !resume && !hold;

/**
 * Uses a machine that was loaded ahead and has not run. Only a failure before it continues falls back to loading: a
 * guest that a tenant saved continues only once.
 */
async function startPreloaded(
  deps: MachineDeps,
  undo: UndoStack,
  call: WarmStart,
): Promise<Machine | undefined> {
  const failure = "a machine that was loaded ahead cannot be had";
  const loaded = await tryWarm(deps, undo, call, failure, (own) => nameWarm(deps, own, call));
  return loaded && (await continueAndHandshake(deps, undo, loaded));
}

/** Uses a warm machine that has run. One that is not live within `WARM_LIMIT_MS` falls back to loading. */
async function startWarmed(
  deps: MachineDeps,
  undo: UndoStack,
  call: WarmStart,
): Promise<Machine | undefined> {
  const { agent, process } = call.warm;
  // Without the process and the agent, everything that the work waits for fails soon.
  const giveUp = async () => {
    agent.close();
    await killAndWait(process);
  };
  return await tryWarm(deps, undo, call, "a warm machine did not come to life", (own) => {
    const work = async (late: AbortSignal) =>
      await continueAndHandshake(deps, own, await nameWarm(deps, own, call), late);
    return inTime(WARM_LIMIT_MS, { work, giveUp });
  });
}

/** If the work with a warm machine fails, the machine is discarded, and the start falls back to loading. */
async function tryWarm<T>(
  { log }: MachineDeps,
  undo: UndoStack,
  { warm, id }: WarmStart,
  failure: string,
  work: (own: UndoStack) => Promise<T>,
): Promise<T | undefined> {
  const own = new UndoStack();
  own.push("warm machine", () => warm.undo.unwind());
  try {
    const done = await work(own);
    undo.push("warm machine", () => own.unwind());
    return done;
  } catch (err) {
    log.warn({ machine: id, err }, failure);
    await own
      .unwind()
      .catch((left: unknown) => log.error({ machine: id, err: left }, "a warm machine was not removed"));
    return undefined;
  }
}

async function continueAndHandshake(
  deps: MachineDeps,
  undo: UndoStack,
  loaded: Loaded,
  unwanted?: AbortSignal,
): Promise<Machine> {
  const { machine, queue, disk, watch } = loaded;
  const { hold } = machine.spec;
  crashPoint("start.load");
  undo.push("agent", () => machine.agent.close());
  const settings = await deps.guestSettings.current();
  await machine.qmp.execute("cont");
  const loadMs = watch();
  await handshake(machine, { isUnfrozen: loaded.isUnfrozen, settings });
  if (hold) await machine.qmp.execute("stop");
  else await attachVolume(deps, machine);
  await deps.network.networks.known(machine.slot, GATEWAY_KNOWS_MS);
  crashPoint("start.handshake");
  unwanted?.throwIfAborted();
  const timings = { queue, disk, load: loadMs, handshake: watch() };
  machine.entry = { ...machine.entry, state: hold ? "held" : "running", timings };
  await writeEntry(deps.config.dataDir, machine.entry);
  deps.log.info({ machine: machine.id, held: machine.isHeld, ...timings }, "machine started");
  return machine;
}

/** Runs the guest until its agent answers. It has no processes of a user yet. */
async function boot({ machine, manifest }: Loaded, unwanted: AbortSignal): Promise<void> {
  const { agent, qmp, process } = machine;
  const end = () => void killAndWait(process).catch(() => {});
  unwanted.addEventListener("abort", end, { once: true });
  try {
    await qmp.execute("cont");
    const alive = () => !unwanted.aborted && machine.isRunning;
    await waitForAgent({ agent, qmp, alive }, bootLimits(shapeOf(manifest)));
  } catch (cause) {
    if (unwanted.aborted) throw new NodeError("machine_gone", "it was deleted while it booted", { cause });
    // A guest that ended has a broken disk, which a tenant made. One that is late may have met a busy host.
    const code = machine.isRunning ? "agent_unavailable" : "guest_unfit";
    throw new NodeError(code, `it does not boot: ${(cause as Error).message}`, { cause });
  } finally {
    unwanted.removeEventListener("abort", end);
  }
}

interface Loaded {
  machine: Machine;
  manifest: Manifest;
  /** Whether its processes could not be frozen when the state was saved. */
  isUnfrozen: boolean;
  /** Milliseconds of the stages so far. */
  queue: number;
  disk: number;
  /** The stopwatch of the later stages. */
  watch: () => number;
}

async function load(
  deps: MachineDeps,
  undo: UndoStack,
  { id, spec, stateKey, source }: Wanted & { source: Source },
): Promise<Loaded> {
  const { config } = deps;
  const { isVerified } = source;
  const watch = stopwatch();
  const network = spec.network ?? OPEN_NETWORK;
  const slot = await deps.namespaces.take(network.egress.mode);
  const isolation = isolationOf(source.manifest);
  const entry: JournalEntry = {
    ...{ machine_id: id, spec, state: "starting", slot: slot.number, isolation },
    state_key_id: stateKey?.id,
  };
  undo.push("slot and folder", () => clean(deps, entry));
  await writeEntry(config.dataDir, entry);
  crashPoint("start.journal");
  // The network is in force before the guest runs. Loading takes longer, so both run concurrently.
  const assigned = deps.network.networks.assign(slot, id, network);
  assigned.catch(() => {});
  const queue = watch();

  const dir = machineDir(config.dataDir, id);
  const files = { dir, slot, parent: source, stateKey, volume: spec.volume };
  const parent = await prepareFiles(deps, files).catch((cause) => {
    throw cause.code === "ENOENT" ? deps.snapshots.gone(source, cause) : cause;
  });
  const disk = watch();

  const { process, qmp } = await launch(deps, undo, { ...files, parent, isVerified }).catch((cause) => {
    throw isVerified ? cause : deps.snapshots.unloadable(source, cause);
  });
  await assigned;
  const agent = new AgentClient(path.join(dir, "run/agent.sock"));
  const machine = new Machine({ entry: { ...entry, process }, process, qmp, agent });
  const { manifest } = source;
  return { machine, manifest, isUnfrozen: manifest.unfrozen === true, queue, disk, watch };
}

/** Renames a warm machine to its session's. The folder comes first, so that after a crash everything has one owner. */
async function nameWarm(
  deps: MachineDeps,
  undo: UndoStack,
  { warm, source, id, spec }: WarmStart,
): Promise<Loaded> {
  const { config } = deps;
  const watch = stopwatch();
  const dir = machineDir(config.dataDir, id);
  await rename(machineDir(config.dataDir, warm.id), dir);
  // The undo of the warm machine finds it under its own name, and the start that falls back to loading finds no folder.
  undo.push("folder", () => rename(dir, machineDir(config.dataDir, warm.id)));
  warm.agent.moveTo(path.join(dir, "run/agent.sock"));
  const { slot, process, qmp, agent } = warm;
  const isolation = isolationOf(source.manifest);
  const entry: JournalEntry = {
    ...{ machine_id: id, spec, state: "starting", slot: slot.number, process, isolation },
  };
  await allOrNone([
    writeEntry(config.dataDir, entry),
    deps.network.networks.assign(slot, id, spec.network ?? OPEN_NETWORK),
  ]);
  const machine = new Machine({ entry, process, qmp, agent });
  const { manifest } = source;
  return { machine, manifest, isUnfrozen: manifest.unfrozen === true, queue: watch(), disk: 0, watch };
}

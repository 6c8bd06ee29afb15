/**
 * Starts a machine from its template's baseline: journal, slot, network, disk, QEMU, load, continue, handshake.
 * Each acquisition pushes its release; a failure at any step leaves nothing behind.
 */
import { randomBytes } from "node:crypto";
import { chmod, chown, constants, copyFile, mkdir } from "node:fs/promises";
import { freemem } from "node:os";
import path from "node:path";
import type { StartSpec, StartTimings } from "@vivarium/contract/node";
import type { Log } from "@vivarium/kit/log";
import { UndoStack } from "@vivarium/kit/undo-stack";
import type { NodeConfig } from "../config.ts";
import { freeDiskBytes } from "../disks/space.ts";
import { assertGeneration } from "../guest/client.ts";
import { removeCgroup } from "../host/cgroup.ts";
import { makeDevices } from "../host/devices.ts";
import { type Bind, startJailed } from "../host/jail.ts";
import type { NamespacePool } from "../host/namespace-pool.ts";
import { isAlive, killAndWait } from "../host/process.ts";
import type { QemuRoot } from "../host/qemu-root.ts";
import type { Slot } from "../host/slots.ts";
import { NodeError } from "../node-error.ts";
import { JAIL_PATHS, loadArguments } from "../qemu/arguments.ts";
import { loadDeviceState, Qmp } from "../qemu/qmp.ts";
import { type Baseline, baselineKey } from "../snapshots/baselines.ts";
import { shapeOf } from "../snapshots/manifest.ts";
import { machineDir, machinesDir, removeEntry, writeEntry } from "./journal.ts";
import { Machine } from "./machine.ts";
import type { MachineTable } from "./table.ts";

const QMP_LIMIT_MS = 15_000;
const MIB = 1024 * 1024;
const GIB = 1024 * MIB;
/** Memory that stays free for everybody else when a machine is admitted. */
const MEMORY_RESERVE_BYTES = 512 * MIB;
const DISK_FLOOR_BYTES = 1 * GIB;

export interface StartDeps {
  config: NodeConfig;
  qemu: QemuRoot;
  baselines: Map<string, Baseline>;
  namespaces: NamespacePool;
  table: MachineTable;
  log: Log;
}

/** Starting the same machine again answers with the same machine, also while the first start is under way. */
export async function startMachine(deps: StartDeps, id: string, spec: StartSpec): Promise<Machine> {
  const { table } = deps;
  await table.stopping.get(id);
  const known = table.running.get(id) ?? table.starting.get(id);
  if (known) {
    if (JSON.stringify(known.spec) !== JSON.stringify(spec)) {
      throw new NodeError("machine_conflict", `machine ${id} exists with other parameters`);
    }
    return "done" in known ? known.done : known;
  }
  if (table.ended.has(id))
    throw new NodeError("machine_gone", table.ended.get(id)?.reason ?? "the machine has ended");
  const done = admitAndStart(deps, id, spec).finally(() => table.starting.delete(id));
  table.starting.set(id, { spec, done });
  return done;
}

async function admitAndStart(deps: StartDeps, id: string, spec: StartSpec): Promise<Machine> {
  const baseline = deps.baselines.get(baselineKey(spec.template, spec.size));
  if (!baseline) {
    throw new NodeError(
      "template_unavailable",
      `no baseline for template ${spec.template} in size ${spec.size}`,
    );
  }
  await admit(deps);
  const undo = new UndoStack();
  try {
    const machine = await start(deps, undo, id, spec, baseline);
    undo.release();
    deps.table.running.set(id, machine);
    machine.onEnd((reason) => {
      if (deps.table.running.get(id) === machine) deps.table.markEnded(id, reason);
    });
    return machine;
  } catch (error) {
    await undo
      .unwind()
      .catch((failure) => deps.log.error({ machine: id, err: failure }, "undo of a start failed"));
    if (error instanceof NodeError) throw error;
    deps.log.error({ machine: id, err: error }, "start failed");
    throw new NodeError("internal", "the machine could not be started", { cause: error });
  }
}

async function admit(deps: StartDeps): Promise<void> {
  if (deps.table.count >= deps.config.maxMachines) {
    throw new NodeError("no_capacity", `this node runs its maximum of ${deps.config.maxMachines} machines`);
  }
  if (freemem() < MEMORY_RESERVE_BYTES) throw new NodeError("no_capacity", "this node is short of memory");
  if ((await freeDiskBytes(machinesDir(deps.config.dataDir))) < DISK_FLOOR_BYTES) {
    throw new NodeError("disk_pressure", "this node is short of disk space");
  }
}

async function start(
  deps: StartDeps,
  undo: UndoStack,
  id: string,
  spec: StartSpec,
  baseline: Baseline,
): Promise<Machine> {
  const { config } = deps;
  const watch = stopwatch();
  const slot = await deps.namespaces.take();
  undo.push("slot", () => deps.namespaces.discard(slot));
  await writeEntry(config.dataDir, { machine_id: id, spec, state: "starting", slot: slot.number });
  undo.push("journal", () => removeEntry(config.dataDir, id));
  const queue = watch();

  const dir = machineDir(config.dataDir, id);
  await prepareFiles(dir, slot, baseline);
  const disk = watch();

  const { identity: process, lastWords } = await startQemu(deps, dir, slot, baseline);
  undo.push("cgroup", () => removeCgroup(slot));
  undo.push("process", () => killAndWait(process));
  const qmp = await Qmp.connect(path.join(dir, "run/qmp.sock"), {
    limitMs: QMP_LIMIT_MS,
    alive: () => isAlive(process),
  }).catch((cause) => {
    throw new Error(`QEMU did not start: ${lastWords()}`, { cause });
  });
  undo.push("monitor", () => qmp.close());
  await sealRunDir(dir);
  await loadDeviceState(qmp, JAIL_PATHS.state);
  await qmp.execute("cont");
  const load = watch();

  const machine = new Machine({
    id,
    spec,
    slot,
    process,
    qmp,
    agentSocket: path.join(dir, "run/agent.sock"),
  });
  undo.push("agent", () => machine.agent.close());
  await introduce(machine);
  const timings: StartTimings = { queue, disk, load, handshake: watch() };
  Object.assign(machine, { timings });
  await writeEntry(config.dataDir, {
    machine_id: id,
    spec,
    state: "running",
    slot: slot.number,
    process,
    timings,
  });
  deps.log.info({ machine: id, ...timings }, "machine started");
  return machine;
}

/** A clone of the baseline's empty overlay: its backing files are named on the command line, not in its header. */
async function prepareFiles(dir: string, slot: Slot, baseline: Baseline): Promise<void> {
  const disk = path.join(dir, "disk.qcow2");
  await copyFile(path.join(baseline.dir, "empty.qcow2"), disk, constants.COPYFILE_FICLONE);
  await chmod(disk, 0o600);
  await chown(disk, slot.uid, slot.uid);
  await mkdir(path.join(dir, "run"), { mode: 0o700 });
  await chown(path.join(dir, "run"), slot.uid, slot.uid);
}

/** Once QEMU has made its sockets it may not replace them: what the daemon connects to later is what it made now. */
async function sealRunDir(dir: string): Promise<void> {
  await chown(path.join(dir, "run"), 0, 0);
  await chmod(path.join(dir, "run"), 0o711);
}

async function startQemu(deps: StartDeps, dir: string, slot: Slot, baseline: Baseline) {
  const { manifest } = baseline;
  const snapshot = (name: string) => path.join(baseline.dir, name);
  const binds: Bind[] = [
    { source: snapshot("mem"), target: JAIL_PATHS.memory, writable: false },
    { source: snapshot("state"), target: JAIL_PATHS.state, writable: false },
    { source: snapshot("disk.qcow2"), target: JAIL_PATHS.layer, writable: false },
    { source: baseline.base, target: JAIL_PATHS.base, writable: false },
    { source: path.join(dir, "disk.qcow2"), target: JAIL_PATHS.disk, writable: true },
    { source: path.join(dir, "run"), target: JAIL_PATHS.run, writable: true },
  ];
  return startJailed({
    slot,
    qemuRoot: deps.qemu,
    binds,
    devices: await makeDevices(dir, slot, manifest.accelerator === "kvm" ? ["tun", "kvm"] : ["tun"]),
    fileBytes: 2 * manifest.disk_gb * GIB,
    memoryBytes: manifest.mem_mb * MIB,
    vcpus: manifest.vcpus,
    arguments: loadArguments(shapeOf(manifest)),
  });
}

/** Reseed, clock, identity. A machine that does not confirm is not handed out (architecture.md invariant 7). */
async function introduce(machine: Machine): Promise<void> {
  const ack = await machine.agent.resumed({
    entropy: randomBytes(64).toString("base64"),
    wall_clock_ns: String(BigInt(Date.now()) * 1_000_000n),
    identity: {
      hostname: machine.spec.hostname,
      machine_id: randomBytes(16).toString("hex"),
      no_sudo: machine.spec.no_sudo,
    },
  });
  if (!ack.reseeded) throw new Error("the agent did not confirm the reseed");
  assertGeneration(await machine.agent.health());
}

/** Milliseconds since the previous call. */
function stopwatch(): () => number {
  let last = performance.now();
  return () => {
    const now = performance.now();
    const elapsed = Math.round(now - last);
    last = now;
    return elapsed;
  };
}

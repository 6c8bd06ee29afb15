/**
 * What a start of the daemon finds: machines that still run are adopted, half-done starts are undone, machines that
 * died meanwhile are listed as ended, and slots, namespaces and folders without an owner are removed.
 */
import { rm } from "node:fs/promises";
import path from "node:path";
import { isAlive } from "../host/process.ts";
import { slotOf, slotsOf } from "../host/slots.ts";
import { Qmp } from "../qemu/qmp.ts";
import { type JournalEntry, machineDir, readJournal } from "./journal.ts";
import { Machine } from "./machine.ts";
import { clean, type StopDeps } from "./stop.ts";

const QMP_LIMIT_MS = 5_000;

export async function reconcile(deps: StopDeps): Promise<void> {
  const journal = await readJournal(deps.config.dataDir);
  await Promise.all(
    journal.map(({ machineId, entry }) =>
      entry
        ? settle(deps, entry)
        : rm(machineDir(deps.config.dataDir, machineId), { recursive: true, force: true }),
    ),
  );
  await removeUnownedSlots(deps);
}

async function settle(deps: StopDeps, entry: JournalEntry): Promise<void> {
  if (entry.state !== "running") return clean(deps, entry);
  const machine = await adopt(deps, entry).catch((error) => {
    deps.log.warn({ machine: entry.machine_id, err: error }, "machine could not be adopted");
    return null;
  });
  if (machine) deps.log.info({ machine: entry.machine_id }, "machine adopted");
  else deps.table.markEnded(entry.machine_id, "its process ended while its node was down");
}

async function adopt(deps: StopDeps, entry: JournalEntry): Promise<Machine | null> {
  const { process } = entry;
  if (!process || !isAlive(process)) return null;
  const dir = machineDir(deps.config.dataDir, entry.machine_id);
  const qmp = await Qmp.connect(path.join(dir, "run/qmp.sock"), {
    limitMs: QMP_LIMIT_MS,
    alive: () => isAlive(process),
  });
  const machine = new Machine({
    id: entry.machine_id,
    spec: entry.spec,
    slot: slotOf(entry.slot),
    process,
    qmp,
    agentSocket: path.join(dir, "run/agent.sock"),
    timings: entry.timings,
  });
  deps.table.running.set(machine.id, machine);
  machine.onEnd((reason) => {
    if (deps.table.running.get(machine.id) === machine) deps.table.markEnded(machine.id, reason);
  });
  return machine;
}

async function removeUnownedSlots(deps: StopDeps): Promise<void> {
  const owned = new Set([...deps.table.running.values()].map((machine) => machine.slot.number));
  for (const { entry } of await readJournal(deps.config.dataDir)) if (entry) owned.add(entry.slot);
  for (const slot of await slotsOf(deps.config.dataDir)) {
    if (!owned.has(slot.number)) await deps.namespaces.discard(slot);
  }
}

/** Ends a machine and removes everything of it. Every step may be repeated; an unknown machine counts as removed. */
import { crashPoint } from "@vivarium/kit/crash-point";
import { killAndWait } from "@vivarium/kit/process-identity";
import { removeCgroup } from "../host/cgroup.ts";
import { slotOf } from "../host/slots.ts";
import type { MachineDeps } from "./deps.ts";
import { type JournalEntry, readEntry, removeEntry, withdrawEntry } from "./journal.ts";

export type StopDeps = Pick<MachineDeps, "config" | "namespaces" | "table" | "log">;

export function stopMachine(deps: StopDeps, id: string): Promise<void> {
  const { table } = deps;
  const inFlight = table.stopping.get(id);
  if (inFlight !== undefined) return inFlight;
  const done = stop(deps, id).finally(() => table.stopping.delete(id));
  table.stopping.set(id, done);
  return done;
}

async function stop(deps: StopDeps, id: string): Promise<void> {
  const { table } = deps;
  await table.starting.get(id)?.done.catch(() => {});
  const machine = table.running.get(id);
  table.running.delete(id);
  machine?.agent.close();
  if (machine) {
    // Work in progress with the machine fails now. After this wait nothing writes to its journal any more.
    await killAndWait(machine.process);
    await machine.queue.run(async () => {});
  }
  const entry = await readEntry(deps.config.dataDir, id);
  if (entry) await clean(deps, entry);
  else await removeEntry(deps.config.dataDir, id);
  machine?.qmp.close();
  table.ended.delete(id);
}

/**
 * Undoes all that a journal entry may have left on this host. The entry is withdrawn before its slot is freed:
 * otherwise two entries could name one slot, and undoing one would take the slot from the other's machine. A slot
 * without an entry is freed at the next start of the daemon.
 */
export async function clean(deps: StopDeps, entry: JournalEntry): Promise<void> {
  const slot = slotOf(entry.slot);
  if (entry.process) await killAndWait(entry.process);
  crashPoint("stop.killed");
  await removeCgroup(slot);
  await withdrawEntry(deps.config.dataDir, entry.machine_id);
  await deps.namespaces.discard(slot, entry.machine_id);
  crashPoint("stop.released");
  await forget(deps, entry);
}

/** As `clean`, for an entry whose slot was freed already: another machine may have the slot now. */
export async function cleanWithoutSlot(deps: StopDeps, entry: JournalEntry): Promise<void> {
  if (entry.process) await killAndWait(entry.process);
  await forget(deps, entry);
}

async function forget({ config, log }: StopDeps, { machine_id: id }: JournalEntry): Promise<void> {
  await removeEntry(config.dataDir, id);
  log.info({ machine: id }, "machine removed");
}

/** Ends a machine and removes everything of it. Every step may be repeated; an unknown machine counts as removed. */
import { endsWithin } from "@vivarium/kit/clock";
import { crashPoint } from "@vivarium/kit/crash-point";
import { everyStep } from "@vivarium/kit/every-step";
import { killAndWait } from "@vivarium/kit/process-identity";
import { slotOf } from "../host/slots.ts";
import { releaseVolume } from "../volumes/holders.ts";
import type { MachineDeps } from "./deps.ts";
import { type JournalEntry, readEntry, removeEntry, removeFiles, withdrawEntry } from "./journal.ts";
import type { Machine } from "./machine.ts";

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
  const { table, log } = deps;
  const starting = table.starting.get(id);
  starting?.unwanted?.abort();
  await starting?.done.catch(() => {});
  const machine = table.running.get(id);
  table.running.delete(id);
  if (machine) await flushVolume(machine);
  machine?.agent.close();
  try {
    if (machine && (await killed(deps, machine))) {
      // Work in progress with the machine fails now. After this wait nothing writes to its journal any more.
      await machine.queue.run(async () => {});
    }
    const entry = await readEntry(deps.config.dataDir, id);
    if (entry) await clean(deps, { ...entry, machine_id: id });
    else await removeEntry(deps.config.dataDir, id);
  } catch (err) {
    log.error({ machine: id, err }, "a machine is not removed yet; it is tried again");
    throw err;
  } finally {
    machine?.qmp.close();
  }
  table.ended.delete(id);
  table.leftover.delete(id);
}

/** How long a guest may take to write out what it has for its volume. */
const VOLUME_WRITTEN_MS = 20_000;

/** Has a guest that runs write out and unmount its volume. One that does not loses what it has not synced. */
async function flushVolume(machine: Machine): Promise<void> {
  const { spec, isHeld, isRunning, isOutOfSpace } = machine;
  if (!spec.volume || isHeld || !isRunning || isOutOfSpace) return;
  await endsWithin(
    VOLUME_WRITTEN_MS,
    machine.agent.freeze().then(
      () => {},
      () => {},
    ),
  );
  crashPoint("stop.volume");
}

/** Whether the process ended. `clean` tries it again, and names it among what is left. */
async function killed({ log }: StopDeps, { id, process }: Machine): Promise<boolean> {
  try {
    await killAndWait(process);
    return true;
  } catch (err) {
    log.warn({ machine: id, err }, "a machine's process does not end");
    return false;
  }
}

/**
 * Undoes all that a journal entry may have left on this host. An error of one step does not stop the others; then the
 * entry stays, and with it the slot: a process or a group that is left must not become another machine's. Control's
 * delete, `removeLeftovers` and the next start of the daemon try again.
 *
 * The entry is withdrawn before its slot is freed: otherwise two entries could name one slot, and undoing one would
 * take the slot from the other's machine. A slot without an entry is freed at the next start of the daemon.
 */
export async function clean(deps: StopDeps, entry: JournalEntry): Promise<void> {
  const { machine_id: id } = entry;
  deps.table.leftover.delete(id);
  try {
    await removeAll(deps, entry);
  } catch (error) {
    deps.table.leftover.add(id);
    throw error;
  }
}

async function removeAll(deps: StopDeps, entry: JournalEntry): Promise<void> {
  const { config, namespaces } = deps;
  const { machine_id: id, process } = entry;
  const slot = slotOf(entry.slot);
  const end = async () => {
    if (process) await killAndWait(process);
    crashPoint("stop.killed");
  };
  await everyStep([
    { name: "end of its process", run: end },
    { name: `emptying of slot ${slot.number}`, run: () => namespaces.empty(slot, id) },
    { name: "removal of its files", run: () => removeFiles(config.dataDir, id) },
  ]);
  await releaseOwn(deps, entry);
  await withdrawEntry(config.dataDir, id);
  namespaces.free(slot);
  crashPoint("stop.released");
  await forget(deps, entry);
}

/** As `clean`, for an entry whose slot was freed already: another machine may have the slot now. */
export async function cleanWithoutSlot(deps: StopDeps, entry: JournalEntry): Promise<void> {
  if (entry.process) await killAndWait(entry.process);
  await releaseOwn(deps, entry);
  await forget(deps, entry);
}

/** Its processes have ended, so the volume of the machine is free for another one. */
async function releaseOwn({ config }: StopDeps, { machine_id: id, spec }: JournalEntry): Promise<void> {
  if (spec.volume) await releaseVolume(config.dataDir, spec.volume.volume_id, id);
}

async function forget({ config, log }: StopDeps, { machine_id: id }: JournalEntry): Promise<void> {
  await removeEntry(config.dataDir, id);
  log.info({ machine: id }, "machine removed");
}

/**
 * At the daemon's start, adopts running machines, settles interrupted work and removes leftovers: interrupted starts
 * are undone, dead machines listed as ended, and slots, namespaces and folders without an owner removed.
 */
import { rm } from "node:fs/promises";
import path from "node:path";
import { crashPoint } from "@vivarium/kit/crash-point";
import { isAlive, isOfEarlierBoot } from "@vivarium/kit/process-identity";
import { AgentClient } from "../guest/client.ts";
import { abandonFifo } from "../host/fifo.ts";
import { orphanedSlots, removeUnnamedSlots, type Slot, slotsOf } from "../host/slots.ts";
import { OPEN_NETWORK } from "../network/kernel-policy.ts";
import { Qmp } from "../qemu/qmp.ts";
import { isolationOf, readManifest } from "../snapshots/manifest.ts";
import { releaseOfNobody } from "../volumes/holders.ts";
import { STATE_FILE } from "./capture.ts";
import type { MachineDeps } from "./deps.ts";
import { thawAndContinue } from "./handshake.ts";
import { type JournalEntry, machineDir, markHeld, markRunning, parentDir, readJournal } from "./journal.ts";
import { Machine } from "./machine.ts";
import { readNetwork, readPins } from "./network-journal.ts";
import { clean, cleanWithoutSlot, type StopDeps } from "./stop.ts";
import type { Ending } from "./table.ts";

/** Time limit of the connection to a monitor: long, because a busy host makes it slow. */
const QMP_LIMIT_MS = 30_000;

type ReconcileDeps = StopDeps & Pick<MachineDeps, "snapshots" | "network" | "cgroups">;

export async function reconcile(deps: ReconcileDeps): Promise<void> {
  await deps.snapshots.removeUnpublished();
  const { dataDir } = deps.config;
  const journal = await readJournal(dataDir);
  // An interrupted stop may have freed the slot, and a reboot does too. Then another machine may have it by now.
  const slots = new Set((await slotsOf(dataDir)).map(({ number }) => number));
  const undo = (entry: JournalEntry) =>
    (slots.has(entry.slot) ? clean(deps, entry) : cleanWithoutSlot(deps, entry)).catch((err: unknown) =>
      deps.log.error({ machine: entry.machine_id, err }, "a machine is not removed yet; it is tried again"),
    );
  await Promise.all(
    journal.map(async ({ machineId, entry }) => {
      if (!entry) return await rm(machineDir(dataDir, machineId), { recursive: true, force: true });
      // A warm machine in the middle of becoming a session's: its folder has the new name, its entry the old one.
      if (machineId !== entry.machine_id) return await undo({ ...entry, machine_id: machineId });
      if (entry.state === "starting") return await undo(entry);
      const kill = () =>
        slots.has(entry.slot) ? deps.cgroups.memoryKillOf({ number: entry.slot }) : undefined;
      if (await adoptOrEnd(deps, entry, kill)) return;
      // The entry would free the slot a second time when control deletes the machine.
      if (!slots.has(entry.slot)) await undo(entry);
    }),
  );
  await removeUnownedSlots(deps);
  const left = new Set((await readJournal(dataDir)).map(({ machineId }) => machineId));
  await releaseOfNobody(dataDir, (machineId) => left.has(machineId));
}

/** Adopts a machine that runs, and lists any other as ended until control deletes it. Returns whether it runs. */
async function adoptOrEnd(
  deps: ReconcileDeps,
  entry: JournalEntry,
  killReason: () => string | undefined,
): Promise<boolean> {
  const machine = await adopt(deps, entry).catch((error) => {
    deps.log.warn({ machine: entry.machine_id, err: error }, "machine could not be adopted");
    return null;
  });
  if (!machine) {
    deps.table.markEnded(entry.machine_id, endingOf(entry, killReason));
    return false;
  }
  crashPoint("reconcile.adopted");
  deps.log.info({ machine: machine.id, held: machine.isHeld }, "machine adopted");
  return true;
}

/** The end of a machine that does not run any more. Control says the end of the host apart from other ends to callers. */
export function endingOf(
  { process }: Pick<JournalEntry, "process">,
  killReason: () => string | undefined,
): Ending {
  if (process && isOfEarlierBoot(process)) return { reason: "its host restarted", cause: "host_restart" };
  const kill = killReason();
  return { reason: `its process ended while its node was down${kill === undefined ? "" : `: ${kill}`}` };
}

async function adopt(deps: ReconcileDeps, entry: JournalEntry): Promise<Machine | null> {
  const { process } = entry;
  if (!process || !isAlive(process)) return null;
  const dir = machineDir(deps.config.dataDir, entry.machine_id);
  // Before the monitor is asked, which QEMU does not answer while it waits for the daemon that died during a capture.
  abandonFifo(path.join(dir, STATE_FILE));
  const qmp = await Qmp.connect(path.join(dir, "run/qmp.sock"), {
    limitMs: QMP_LIMIT_MS,
    alive: () => isAlive(process),
  });
  // A daemon of an earlier version did not write it down.
  const manifest = await readManifest(parentDir(deps.config.dataDir, entry.machine_id)).catch(
    () => undefined,
  );
  const machine = new Machine({
    entry: { ...entry, isolation: entry.isolation ?? (manifest && isolationOf(manifest)) },
    process,
    qmp,
    agent: new AgentClient(path.join(dir, "run/agent.sock")),
  });
  // The network is in force before the guest continues.
  const kept = await readNetwork(deps.config.dataDir, machine.id);
  const started = entry.spec.network ?? OPEN_NETWORK;
  const pins = await readPins(deps.config.dataDir, machine.id);
  await deps.network.networks.adopt(machine.slot, machine.id, started, kept, pins);
  if (!machine.isHeld) await settleCapture(deps, machine);
  deps.table.add(machine);
  return machine;
}

/** Ends a capture during which the daemon may have died. The snapshot's manifest shows whether it was complete. */
async function settleCapture(deps: ReconcileDeps, machine: Machine): Promise<void> {
  const { holding_for: wanted } = machine.entry;
  // An unreadable snapshot counts as incomplete: then the machine has the only copy of its state.
  const isTaken = wanted !== undefined && (await deps.snapshots.get(wanted).catch(() => undefined));
  if (isTaken)
    return await markHeld(deps.config, machine).catch((err) => keepInMemory(deps, machine, "held", err));
  await machine.qmp.execute("cont");
  // Not awaited: a slow agent must not delay the daemon's start.
  thawAndContinue(machine).catch((err: unknown) =>
    deps.log.warn({ machine: machine.id, err }, "an adopted machine's agent does not answer"),
  );
  if (wanted === undefined) return;
  await markRunning(deps.config, machine).catch((err) => keepInMemory(deps, machine, "running", err));
}

/** A machine survives a journal that cannot be written, such as on a full disk. The next start decides again. */
function keepInMemory(deps: ReconcileDeps, machine: Machine, state: "held" | "running", err: unknown): void {
  deps.log.error({ machine: machine.id, err }, "the journal could not be written");
  machine.entry = { ...machine.entry, state };
}

async function removeUnownedSlots(deps: StopDeps): Promise<void> {
  await removeUnnamedSlots(deps.config.dataDir);
  const owned = new Set([...deps.table.running.values()].map((machine) => machine.slot.number));
  for (const { entry } of await readJournal(deps.config.dataDir)) if (entry) owned.add(entry.slot);
  for (const slot of await slotsOf(deps.config.dataDir)) {
    if (owned.has(slot.number)) continue;
    await discard(deps, slot);
    crashPoint("reconcile.slot");
  }
  for (const slot of await orphanedSlots()) await discard(deps, slot);
}

/** A slot that cannot be emptied stays taken. It costs its number, not the start of the daemon. */
async function discard({ namespaces, log }: StopDeps, slot: Slot): Promise<void> {
  await namespaces
    .discard(slot)
    .catch((err: unknown) =>
      log.error({ slot: slot.number, err }, "a slot could not be emptied; it stays taken"),
    );
}

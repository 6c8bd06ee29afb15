/**
 * Compares rows with machines. Rows win over machines nobody asked for; machines win over rows that claim a machine
 * which is gone. A node that does not answer proves nothing.
 */
import type { MachineStatus } from "@vivarium/contract/node";
import type { Log } from "@vivarium/kit/log";
import type { Database } from "../db/pool.ts";
import type { NodeClient } from "../fleet/node-client.ts";
import { oneLine } from "../http/render-error.ts";
import { releaseSession } from "./release-session.ts";
import type { SessionSignals } from "./signals.ts";
import { decide, isActive, machineIdOf } from "./state.ts";
import { findSessionsById, listLiveMachines, type SessionRow, saveMove } from "./store.ts";

const UNKNOWN_GRACE_MS = 60_000;

export interface ReconcileDeps {
  db: Database;
  nodes: NodeClient;
  signals: SessionSignals;
  log: Log;
  /** Machines that no row knows, and since when. */
  unknownSince: Map<string, number>;
}

export async function reconcileMachines(deps: ReconcileDeps): Promise<void> {
  // Rows first: a session that is live now had its machine before the list is taken, unless the machine is lost.
  const live = await listLiveMachines(deps.db);
  const machines = await deps.nodes.listMachines();
  const byId = new Map(machines.map((machine) => [machine.machine_id, machine]));
  for (const session of live) {
    const machine = byId.get(machineIdOf(session));
    if (!machine || machine.state === "ended") await loseMachine(deps, session, machine);
  }
  await removeUnwanted(deps, machines);
}

async function loseMachine(deps: ReconcileDeps, session: SessionRow, machine?: MachineStatus): Promise<void> {
  const move = decide(session, "machine_lost");
  const why = machine?.reason ? `: ${machine.reason}` : "";
  const statusReason = oneLine(
    machine ? `the machine ended${why}` : "the machine is gone from its node",
    200,
  );
  const row = move && (await saveMove(deps.db, session.id, move, { statusReason }));
  if (!row) return;
  deps.log.warn({ session_id: session.id, reason: statusReason }, "session failed");
  deps.signals.moved(session.id);
  await releaseSession(deps, row);
}

async function removeUnwanted(deps: ReconcileDeps, machines: MachineStatus[]): Promise<void> {
  const sessions = await findSessionsById(deps.db, machines.map(sessionIdOf));
  const byId = new Map(sessions.map((session) => [session.id, session]));
  const unknown = machines.filter((machine) => !byId.has(sessionIdOf(machine)));
  const superfluous = machines.filter((machine) => isSuperfluous(machine, byId.get(sessionIdOf(machine))));
  for (const machine of [...superfluous, ...pastGrace(deps.unknownSince, unknown)]) {
    deps.log.info({ machine_id: machine.machine_id }, "removing a machine that no session wants");
    await deps.nodes.deleteMachine(machine.machine_id);
  }
}

function isSuperfluous(machine: MachineStatus, session: SessionRow | undefined): boolean {
  if (!session) return false;
  return !isActive(session.state) || machineIdOf(session) !== machine.machine_id;
}

/** A machine without any row may belong to a database that was restored or mixed up: it gets a minute. */
function pastGrace(unknownSince: Map<string, number>, unknown: MachineStatus[]): MachineStatus[] {
  const ids = new Set(unknown.map((machine) => machine.machine_id));
  for (const id of unknownSince.keys()) if (!ids.has(id)) unknownSince.delete(id);
  const now = Date.now();
  for (const id of ids) if (!unknownSince.has(id)) unknownSince.set(id, now);
  return unknown.filter((machine) => now - (unknownSince.get(machine.machine_id) ?? now) > UNKNOWN_GRACE_MS);
}

function sessionIdOf(machine: MachineStatus): string {
  return machine.machine_id.split("-", 1)[0] ?? "";
}

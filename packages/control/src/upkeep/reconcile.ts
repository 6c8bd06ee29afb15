/**
 * Reconciles rows with machines: deletes machines that no session wants, and fails sessions whose machine is gone. A
 * node that does not answer proves nothing.
 */

import type { MachineStatus } from "@vivarium/contract/node";
import { crashPoint } from "@vivarium/kit/crash-point";
import { findCaptured } from "../artifact-records/store.ts";
import { findNewestCheckpoint } from "../checkpoints/store.ts";
import { catchUpWithMachine, catchUpWithSavedState } from "../moves/catch-up.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { failSession } from "../moves/release-session.ts";
import { saveIsolation } from "../moves/save-move.ts";
import { settleSession } from "../moves/settle.ts";
import { hasEnded, incarnationOf, isActive, machineIdOf, sessionIdOf } from "../sessions/state.ts";
import { findSessionsById, listLiveMachines, type SessionRow } from "../sessions/store.ts";
import { seenFor } from "./seen-for.ts";

const UNKNOWN_GRACE_MS = 60_000;

export class Reconciler {
  readonly #deps: MoveDeps;
  /** Machines without a row, each with the time (`performance.now()`) of the first pass that found it. */
  readonly #unknownSince = new Map<string, number>();

  constructor(deps: MoveDeps) {
    this.#deps = deps;
  }

  /** One pass over all rows and all machines. */
  async reconcile(): Promise<void> {
    const deps = this.#deps;
    // Rows first: a session that is live now had its machine before the list is taken, unless the machine is lost.
    const live = await listLiveMachines(deps.db);
    const machines = await deps.nodes.listMachines();
    const byId = new Map(machines.map((machine) => [machine.machine_id, machine]));
    const isCaughtUp = await catchUp(deps, machines);
    // An operation in flight decides about the machines of its session itself, and its row refuses these moves.
    for (const session of live.filter(({ id, op }) => op === null && !isCaughtUp.has(id))) {
      const machine = byId.get(machineIdOf(session));
      if (!machine || machine.state === "ended") await loseMachine(deps, session, machine);
      else if (machine.state === "held") await settleSession(deps, session);
      else if (session.isolation === null) await saveIsolation(deps.db, session, machine);
    }
    const others = machines.filter(({ machine_id: id }) => !isCaughtUp.has(sessionIdOf(id)));
    await removeUnwanted(deps, others, this.#unknownSince);
  }
}

/** Catches up rows that are older than their machines. Returns the sessions' ids; the next pass compares them again. */
async function catchUp(deps: MoveDeps, machines: MachineStatus[]): Promise<Set<string>> {
  const ofSession = Map.groupBy(machines, ({ machine_id: id }) => sessionIdOf(id));
  const caughtUp = new Set<string>();
  for (const session of await findSessionsById(deps.db, [...ofSession.keys()])) {
    if (session.op !== null) continue;
    if (await catchUpWithMachine(deps, session, ofSession.get(session.id) ?? [])) caughtUp.add(session.id);
  }
  return caughtUp;
}

async function loseMachine(deps: MoveDeps, session: SessionRow, machine?: MachineStatus): Promise<void> {
  const saved = await catchUpWithSavedState(deps, session, await deps.nodes.listSnapshots());
  if (saved) return deps.signals.moved(session.id);
  await failSession(deps, session, "machine_lost", await reasonOf(deps, session, machine));
}

async function reasonOf(
  { db }: MoveDeps,
  session: SessionRow,
  machine: MachineStatus | undefined,
): Promise<string> {
  if (!machine) return "the machine is gone from its node";
  if (machine.cause !== "host_restart")
    return `the machine ended${machine.reason ? `: ${machine.reason}` : ""}`;
  const checkpoint = await findNewestCheckpoint(db, session.id);
  // The session is not brought back from it: it would continue from an earlier moment, and do things twice, unasked.
  const wayOut = checkpoint ? `start a session from its newest checkpoint, ${checkpoint.id}` : "";
  return `host_restart: the host went down while the session was live; ${wayOut || "it has no checkpoint"}`;
}

async function removeUnwanted(
  deps: MoveDeps,
  machines: MachineStatus[],
  unknownSince: Map<string, number>,
): Promise<void> {
  const ids = machines.map(({ machine_id: id }) => id);
  const sessions = await findSessionsById(deps.db, ids.map(sessionIdOf));
  const byId = new Map(sessions.map((session) => [session.id, session]));
  const captured = await findCaptured(deps.db, ids.map(sessionIdOf));
  const unknown = new Set(ids.filter((id) => !byId.has(sessionIdOf(id))));
  // Machines without a row are not removed at once, because the database may be the wrong one.
  for (const id of seenFor(unknownSince, unknown, UNKNOWN_GRACE_MS)) await remove(deps, id);
  for (const machine of machines) {
    const session = byId.get(sessionIdOf(machine.machine_id));
    if (!session || isWanted(machine, session) || isCaptured(machine, session, captured)) continue;
    if (isSuperseded(machine, session)) await remove(deps, machine.machine_id);
    // Race: an operation may start a machine with this id at any moment, so only an operation may remove it.
    else if (session.op === null) await settleSession(deps, session);
  }
}

async function remove({ nodes, log }: MoveDeps, id: string): Promise<void> {
  log.info({ machine_id: id }, "removing a machine that no session wants");
  await nodes.deleteMachine(id);
  crashPoint("reconcile.removed");
}

/** Whether the machine is the session's, or may be one that an operation in flight makes or removes. */
function isWanted(machine: MachineStatus, session: SessionRow): boolean {
  if (isActive(session.state) && machine.machine_id === machineIdOf(session)) return true;
  return session.op !== null && !hasEnded(session.state) && !isSuperseded(machine, session);
}

/** Whether files of an ended session are being captured from the machine. */
function isCaptured(machine: MachineStatus, session: SessionRow, captured: ReadonlySet<string>): boolean {
  return captured.has(session.id) && machine.machine_id === machineIdOf(session);
}

/** Whether no machine of this id will ever be started again. */
function isSuperseded(machine: MachineStatus, session: SessionRow): boolean {
  if (hasEnded(session.state)) return true;
  const number = incarnationOf(machine.machine_id);
  return number < session.incarnation || (number === session.incarnation && !isActive(session.state));
}

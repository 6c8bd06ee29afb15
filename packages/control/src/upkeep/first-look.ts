/**
 * First comparison of rows and node after the start of a process. Catches up rows that are older than the node, because
 * the database was restored from a backup. Hazard: the backup may contain operations and creates in flight. If they
 * were taken over first, the session's newer machine or snapshot would be removed as an orphan. So this runs before any
 * take-over.
 */
import { LIMITS } from "@vivarium/contract/api";
import type { MachineStatus, SnapshotStatus } from "@vivarium/contract/node";
import { isStoreUnavailable } from "../db/postgres-errors.ts";
import { readDeadlineTime, readLeaseTime } from "../db/time.ts";
import { catchUpWithMachine, catchUpWithSavedState, isNewerThanRow } from "../moves/catch-up.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { incarnationOf, isCreating, machineIdOf, sessionIdOf, WAKES_FROM } from "../sessions/state.ts";
import { findSessionsById, listLiveMachines, type SessionRow } from "../sessions/store.ts";

interface Found {
  machines: readonly MachineStatus[];
  snapshots: readonly SnapshotStatus[];
  /** The database's `now()`, which leases are compared with. */
  now: Date;
  /** The database's `service_now()`, which deadlines are compared with. */
  deadlineTime: Date;
}

/** Fails if the node or the database does not answer: then no row may be judged. */
export async function takeFirstLook(deps: MoveDeps): Promise<void> {
  const [machines, snapshots] = await Promise.all([deps.nodes.listMachines(), deps.nodes.listSnapshots()]);
  const found = {
    machines,
    snapshots,
    now: await readLeaseTime(deps.db),
    deadlineTime: await readDeadlineTime(deps.db),
  };
  const live = await listLiveMachines(deps.db);
  const ids = new Set([
    ...live.map(({ id }) => id),
    ...[...machines, ...snapshots].flatMap(({ machine_id: id }) => (id === undefined ? [] : sessionIdOf(id))),
  ]);
  for (const session of await findSessionsById(deps.db, [...ids])) {
    await catchUp(deps, session, found).catch((err: unknown) => {
      if (isStoreUnavailable(err)) throw err;
      // One bad row must not stop the work on all others.
      deps.log.error({ err, session_id: session.id }, "a session could not be brought in line with its node");
    });
  }
}

async function catchUp(deps: MoveDeps, session: SessionRow, found: Found): Promise<void> {
  const machines = found.machines.filter(({ machine_id: id }) => sessionIdOf(id) === session.id);
  const isNewer = (row: SessionRow, machine: MachineStatus) =>
    isNewerThanRow(row, machine) || hasBecomeLive(row, machine, found) || isRestored(row, machine, found);
  if (await catchUpWithMachine(deps, session, machines, isNewer)) return;
  const hasMachine = machines.some(
    ({ machine_id: id, state }) => id === machineIdOf(session) && state !== "ended",
  );
  if (hasMachine && session.state !== WAKES_FROM) return;
  if (await catchUpWithSavedState(deps, session, found.snapshots)) deps.signals.moved(session.id);
}

/**
 * Whether a session that is `creating` in the backup became live since: no create takes longer than `provisionMs`.
 * Children of a fork that was never committed did not. A fork discards them before it deletes its snapshot, so while
 * the snapshot exists, they are not live.
 */
function hasBecomeLive(session: SessionRow, { machine_id: id }: MachineStatus, found: Found): boolean {
  if (!isCreating(session.state) || id !== machineIdOf(session)) return false;
  if (found.deadlineTime.getTime() - session.created_at.getTime() < LIMITS.provisionMs) return false;
  const isOfFork = session.parent_session_id !== null;
  return !isOfFork || !found.snapshots.some((one) => one.snapshot_id === session.origin_snapshot_id);
}

/** Whether a restore in flight in the backup was committed since: its machine is continued only after the commit. */
function isRestored(session: SessionRow, { machine_id: id, state }: MachineStatus, { now }: Found): boolean {
  const hasLapsed = session.op_claimed_until !== null && session.op_claimed_until < now;
  const isNext = incarnationOf(id) === session.incarnation + 1;
  return session.op === "restore" && hasLapsed && isNext && state === "running";
}

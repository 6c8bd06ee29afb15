/**
 * The first look of a process at its node: rows that a backup has made older than what the node has of their sessions go
 * forward, also where an operation, or the making of the session, was under way when the backup was taken. Whoever would
 * end such an operation first would take the session's machine, or what was saved of it, for its own leavings.
 */
import { LIMITS } from "@vivarium/contract/api";
import type { MachineStatus, SnapshotStatus } from "@vivarium/contract/node";
import { isStoreUnavailable } from "../db/postgres-errors.ts";
import { readDeadlineTime, readLeaseTime } from "../db/time.ts";
import { catchUpWithMachine, catchUpWithSavedState, isAhead } from "../moves/catch-up.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { incarnationOf, isAwaited, machineIdOf, sessionIdOf, WAKES_FROM } from "../sessions/state.ts";
import { findSessionsById, listLiveMachines, type SessionRow } from "../sessions/store.ts";

interface Found {
  machines: readonly MachineStatus[];
  snapshots: readonly SnapshotStatus[];
  /** By the clocks of leases, and of deadlines. */
  now: Date;
  deadlineTime: Date;
}

/** Fails when the node or the store does: nothing is known of the rows then. */
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
      // One row is not to hold up the work on all others.
      deps.log.error({ err, session_id: session.id }, "a session could not be brought in line with its node");
    });
  }
}

async function catchUp(deps: MoveDeps, session: SessionRow, found: Found): Promise<void> {
  const machines = found.machines.filter(({ machine_id: id }) => sessionIdOf(id) === session.id);
  const isLater = (row: SessionRow, machine: MachineStatus) =>
    isAhead(row, machine) || isHandedOut(row, machine, found) || isRestored(row, machine, found);
  if (await catchUpWithMachine(deps, session, machines, isLater)) return;
  const hasMachine = machines.some(
    ({ machine_id: id, state }) => id === machineIdOf(session) && state !== "ended",
  );
  if (hasMachine && session.state !== WAKES_FROM) return;
  if (await catchUpWithSavedState(deps, session, found.snapshots)) deps.signals.moved(session.id);
}

/**
 * Nobody makes a session for this long: it was handed out, in a row that is lost. Children of a fork that was never
 * committed go before what they come from, so that they are told from others while that is on the node.
 */
function isHandedOut(session: SessionRow, { machine_id: id }: MachineStatus, found: Found): boolean {
  if (!isAwaited(session.state) || id !== machineIdOf(session)) return false;
  if (found.deadlineTime.getTime() - session.created_at.getTime() < LIMITS.provisionMs) return false;
  const isOfFork = session.parent_session_id !== null;
  return !isOfFork || !found.snapshots.some((one) => one.snapshot_id === session.origin_snapshot_id);
}

/** The machine of a restore goes on only once the row says that it is the session's. */
function isRestored(session: SessionRow, { machine_id: id, state }: MachineStatus, { now }: Found): boolean {
  const isLeft = session.op_claimed_until !== null && session.op_claimed_until < now;
  const isNext = incarnationOf(id) === session.incarnation + 1;
  return session.op === "restore" && isLeft && isNext && state === "running";
}

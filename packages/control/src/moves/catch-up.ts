/**
 * A database that was brought back from a backup has rows that are older than what the node has of their sessions: one
 * was paused and woken since. Such a row goes forward to the machine that there is, or to the state that was saved
 * last, so that what happened since the backup is not lost. A machine, or a saved state, that an operation of this very
 * database left behind is none of these: it is removed.
 */
import type { MachineStatus, SnapshotStatus } from "@vivarium/contract/node";
import type { Log } from "@vivarium/kit/log";
import type { Database } from "../db/pool.ts";
import { recordSnapshotName, ownSnapshots } from "../operations/snapshot-names.ts";
import type { SessionSignals } from "../sessions/signals.ts";
import { decideCatchUp, incarnationOf } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import { saveMove } from "./save-move.ts";

type IsLater = (session: SessionRow, machine: MachineStatus) => boolean;

interface CatchUpDeps {
  db: Database;
  log: Log;
}

/**
 * True when the row is older than one of these machines, all that the node has of the session. They were listed before
 * the row was read. An operation in the row is as old as the row, and ends.
 */
export async function catchUpWithMachine(
  { db, signals, log }: CatchUpDeps & { signals: SessionSignals },
  session: SessionRow,
  machines: readonly MachineStatus[],
  isLater?: IsLater,
): Promise<boolean> {
  // Nobody waits for a run whose row is old: its lease ends it.
  if (session.origin === "run") return false;
  const machine = newerMachine(session, machines, isLater);
  if (!machine) return false;
  const move = decideCatchUp(session, "machine_found", incarnationOf(machine.machine_id));
  if (!move) return false;
  const row = await saveMove(db, session.id, move, {
    ...operationOf(session),
    guestIp: machine.guest_ip,
    foundGeneration: machine.network_generation ?? 0,
  });
  if (row)
    log.warn(
      { machine_id: machine.machine_id },
      "a session's row was older than its machine: it goes forward",
    );
  signals.moved(session.id);
  return true;
}

/** The machine that the row goes forward to, if it is older than the one that goes on. */
export function newerMachine(
  session: SessionRow,
  machines: readonly MachineStatus[],
  isLater: IsLater = isNewerThanRow,
): MachineStatus | undefined {
  const machine = currentMachine(session, machines);
  return machine && isLater(session, machine) ? machine : undefined;
}

/** The one that runs; where all stand still, the last: it was about to go on, or to be let go. */
function currentMachine(session: SessionRow, machines: readonly MachineStatus[]): MachineStatus | undefined {
  const newestFirst = machines
    .filter(({ machine_id: id }) => incarnationOf(id) >= session.incarnation)
    .sort((one, other) => incarnationOf(other.machine_id) - incarnationOf(one.machine_id));
  return (
    newestFirst.find(({ state }) => state === "running") ?? newestFirst.find(({ state }) => state === "held")
  );
}

/**
 * An operation of this database can leave a machine of the next number, and raises the generation in the row before it
 * asks for one. Further numbers, and later generations, were given by rows that are lost.
 */
export function isNewerThanRow(
  session: SessionRow,
  { machine_id: id, network_generation: generation = 0 }: MachineStatus,
): boolean {
  const number = incarnationOf(id);
  if (number <= session.incarnation) return false;
  return number > session.incarnation + 1 || generation > session.network_generation;
}

/** The row as it is by then, when one of these snapshots was saved of its session after the row was written. */
export async function catchUpWithSavedState(
  { db, log }: CatchUpDeps,
  session: SessionRow,
  snapshots: readonly SnapshotStatus[],
): Promise<SessionRow | undefined> {
  const saved = await lastSaved({ db }, session, snapshots);
  const move = saved && decideCatchUp(session, "saved_state_found", incarnationOf(saved.machine_id));
  if (!move) return undefined;
  const row = await db.transaction().execute(async (tx) => {
    const moved = await saveMove(tx, session.id, move, {
      ...operationOf(session),
      snapshot: { id: saved.snapshot_id, bytes: saved.bytes },
      // A wake that was asked for before the session was woken is not asked for any more.
      wakeAt: null,
    });
    if (moved) await recordSnapshotName(tx, saved.snapshot_id);
    return moved;
  });
  if (row)
    log.warn(
      { session_id: session.id, snapshot_id: saved.snapshot_id },
      "a session's row was older than its saved state: it goes forward",
    );
  return row;
}

const operationOf = ({ op_id: id }: SessionRow) => (id === null ? {} : { operation: { id } });

/** Every saved state that this database asked for is known to it by name, also one that it gave up. */
async function lastSaved(
  { db }: Pick<CatchUpDeps, "db">,
  session: SessionRow,
  snapshots: readonly SnapshotStatus[],
) {
  const least = session.state === "live" ? session.incarnation : session.incarnation + 1;
  const candidates = snapshots.flatMap(({ machine_id: machineId, ...snapshot }) =>
    machineId?.startsWith(`${session.id}-`) && incarnationOf(machineId) >= least
      ? [{ ...snapshot, machine_id: machineId }]
      : [],
  );
  const own = new Set(
    await ownSnapshots(
      db,
      candidates.map(({ snapshot_id: id }) => id),
    ),
  );
  return (
    candidates
      // What was saved before the row came to be as it is was left behind since: it is no later state.
      .filter(({ created_at: at }) => Date.parse(at) > session.state_changed_at.getTime())
      .filter(({ snapshot_id: id, state }) => state === "ready" && !own.has(id))
      .sort(
        (one, other) =>
          incarnationOf(other.machine_id) - incarnationOf(one.machine_id) ||
          Date.parse(other.created_at) - Date.parse(one.created_at),
      )[0]
  );
}

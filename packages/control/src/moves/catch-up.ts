/**
 * Catches up rows that are older than the node, because the database was restored from a backup and the session was
 * paused and woken since. Such a row moves forward to the machine on the node, or to the newest snapshot, so that
 * nothing is lost. A machine or a snapshot that an interrupted operation of this database left is an orphan instead.
 */
import type { MachineStatus, SnapshotStatus } from "@vivarium/contract/node";
import { keepOnlyNamed } from "../operations/store.ts";
import { decideCatchUp, incarnationOf, sessionIdOf } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import type { MoveDeps } from "./deps.ts";
import { saveMove } from "./save-move.ts";
import { insertSnapshotName } from "./store.ts";

type IsNewer = (session: SessionRow, machine: MachineStatus) => boolean;

/**
 * Moves the row forward to the session's current machine on the node, if the row is older. Returns whether it was.
 * `machines` must be all machines of the session on the node, listed before the row was read. An operation in an old
 * row is outdated too, and ends.
 */
export async function catchUpWithMachine(
  deps: Pick<MoveDeps, "db" | "signals" | "auditKey" | "log">,
  session: SessionRow,
  machines: readonly MachineStatus[],
  isNewer?: IsNewer,
): Promise<boolean> {
  const { signals, log } = deps;
  // The caller of such a run is gone. The run's lease ends its session.
  if (session.origin === "run") return false;
  const machine = newerMachine(session, machines, isNewer);
  if (!machine) return false;
  const move = decideCatchUp(session, "machine_found", incarnationOf(machine.machine_id));
  if (!move) return false;
  const row = await saveMove(deps, session, move, {
    ...operationOf(session),
    machine,
    foundGeneration: machine.network_generation ?? 0,
  });
  if (row)
    log.warn(
      { machine_id: machine.machine_id },
      "a session's row was older than its machine and has caught up",
    );
  signals.moved(session.id);
  return true;
}

/** The session's current machine, if the row is older than it. */
export function newerMachine(
  session: SessionRow,
  machines: readonly MachineStatus[],
  isNewer: IsNewer = isNewerThanRow,
): MachineStatus | undefined {
  const machine = currentMachine(session, machines);
  return machine && isNewer(session, machine) ? machine : undefined;
}

/** The newest running machine; if none runs, the newest held one, which was about to be continued or removed. */
function currentMachine(session: SessionRow, machines: readonly MachineStatus[]): MachineStatus | undefined {
  const newestFirst = machines
    .filter(({ machine_id: id }) => incarnationOf(id) >= session.incarnation)
    .sort((one, other) => incarnationOf(other.machine_id) - incarnationOf(one.machine_id));
  return (
    newestFirst.find(({ state }) => state === "running") ?? newestFirst.find(({ state }) => state === "held")
  );
}

/**
 * Whether a newer version of the row, lost since the backup, started the machine. An interrupted operation of this
 * database can also leave a machine of the next incarnation, but it raises the network generation in the row first. So
 * a higher incarnation, or a later generation, proves the loss.
 */
export function isNewerThanRow(
  session: SessionRow,
  { machine_id: id, network_generation: generation = 0 }: MachineStatus,
): boolean {
  const number = incarnationOf(id);
  if (number <= session.incarnation) return false;
  return number > session.incarnation + 1 || generation > session.network_generation;
}

/** Moves the row forward to the session's newest snapshot, if that is newer. Returns the moved row; else undefined. */
export async function catchUpWithSavedState(
  { db, auditKey, log }: Pick<MoveDeps, "db" | "auditKey" | "log">,
  session: SessionRow,
  snapshots: readonly SnapshotStatus[],
): Promise<SessionRow | undefined> {
  const saved = await newestForeignSnapshot(db, session, snapshots);
  const move = saved && decideCatchUp(session, "saved_state_found", saved.incarnation);
  if (!move) return undefined;
  const row = await db.transaction().execute(async (tx) => {
    const moved = await saveMove({ db: tx, auditKey }, session, move, {
      ...operationOf(session),
      snapshot: { id: saved.snapshot_id, bytes: saved.bytes },
      // The scheduled wake in the row is outdated: the session was woken since.
      wakeAt: null,
    });
    if (moved) await insertSnapshotName(tx, saved.snapshot_id);
    return moved;
  });
  if (row)
    log.warn(
      { session_id: session.id, snapshot_id: saved.snapshot_id },
      "a session's row was older than its saved state and has caught up",
    );
  return row;
}

const operationOf = ({ op_id: id }: SessionRow) => (id === null ? {} : { operation: { id } });

/**
 * The newest snapshot of the session that no operation of this database asked for. `snapshot_names` has all that were
 * asked for and are on the node, even if they were discarded since.
 */
async function newestForeignSnapshot(
  db: MoveDeps["db"],
  session: SessionRow,
  snapshots: readonly SnapshotStatus[],
) {
  const least = session.state === "live" ? session.incarnation : session.incarnation + 1;
  const candidates = snapshots
    .filter(({ machine_id: id = "" }) => sessionIdOf(id) === session.id)
    .map((one) => ({
      ...one,
      at: Date.parse(one.created_at),
      incarnation: incarnationOf(one.machine_id ?? ""),
    }))
    .filter(({ incarnation, state }) => incarnation >= least && state === "ready")
    // A snapshot from before the row's last move is an older state.
    .filter(({ at }) => at > session.state_changed_at.getTime())
    .sort((one, other) => other.incarnation - one.incarnation || other.at - one.at);
  const ids = candidates.map(({ snapshot_id: id }) => id);
  const own = new Set(await keepOnlyNamed(db, ids));
  return candidates.find(({ snapshot_id: id }) => !own.has(id));
}

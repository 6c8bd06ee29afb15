/** Moves a session, with its event and its audit entry: collects the assignments of all folders that own columns, for one statement of `store.ts`. */
import { type CreateTiming, MOVE_ACTIONS, type SessionEvent } from "@vivarium/contract/api";
import type { MachineStatus } from "@vivarium/contract/node";
import { type Caller, theSystem } from "../access/caller.ts";
import type { AuditDeps } from "../audit/append.ts";
import { newRow } from "../audit/entry.ts";
import { connectionColumns } from "../connections/columns.ts";
import type { Database, Queries } from "../db/pool.ts";
import { untilStored } from "../db/retry.ts";
import { deadlineColumns } from "../deadlines/columns.ts";
import { networkColumns } from "../egress/columns.ts";
import { leaseColumns } from "../leases/columns.ts";
import { operationColumns } from "../operations/columns.ts";
import type { Operation } from "../operations/operations.ts";
import { secretColumns } from "../secrets/columns.ts";
import { decide, type Move, type Standing } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import { eventOfMove } from "./event-of-move.ts";
import { updateMachine, writeMove } from "./store.ts";

/** The facts about a started machine that the row keeps. */
export type NewMachine = Pick<MachineStatus, "guest_ip" | "isolation">;

export interface MoveDetails {
  statusReason?: string;
  timings?: CreateTiming;
  /**
   * The operation that this move commits. The move ends it, or turns it into a `settle`. Without an operation, the move
   * fails while one is in flight, unless `preempts`.
   */
  operation?: { id: string; thenSettle?: boolean };
  preempts?: boolean;
  snapshot?: { id: string; bytes: number };
  machine?: NewMachine;
  wakeAt?: Date | null;
  /** The checkpoint that the session was restored to. */
  restoredFrom?: string;
  /** Network generation of a machine that this database did not start: its network may differ from the row's. */
  foundGeneration?: number;
  /** The caller that asked for the move; absent: the service makes it by itself. */
  by?: Caller;
}

type SaveDeps<Db> = AuditDeps & { db: Db };

/** Writes a move. Undefined if the session moved since the decision, or an operation is in flight. */
export async function saveMove(
  deps: SaveDeps<Queries>,
  session: Pick<SessionRow, "id" | "org_id">,
  move: Move,
  details: MoveDetails = {},
): Promise<SessionRow | undefined> {
  const { operation, wakeAt, foundGeneration } = details;
  const columns = {
    ...deadlineColumns(move, wakeAt),
    ...leaseColumns(move),
    ...networkColumns(move, foundGeneration),
    ...secretColumns(move),
    ...connectionColumns(move),
    ...(operation && operationColumns(operation)),
  };
  const event = eventOfMove(move, details);
  const emitted = event && {
    event,
    entry: entryOfMove(deps, session, move, { ...details, type: event.type }),
  };
  return await writeMove(deps.db, session.id, move, details, { columns, emitted });
}

function entryOfMove(
  { auditKey }: AuditDeps,
  { id, org_id: orgId }: Pick<SessionRow, "id" | "org_id">,
  { event, endReason }: Move,
  { by, type, restoredFrom, wakeAt }: MoveDetails & { type: keyof typeof MOVE_ACTIONS },
) {
  const meta = {
    event,
    ...(endReason !== undefined && { end_reason: endReason }),
    ...(restoredFrom !== undefined && { checkpoint_id: restoredFrom }),
    ...(wakeAt && { wake_at: wakeAt.toISOString() }),
  };
  const action = MOVE_ACTIONS[type];
  return newRow(auditKey, { by: by ?? theSystem(orgId), action, target: id, sessionId: id, meta });
}

/** Moves the session by an event. Undefined if its state refuses the event, or when `saveMove` is. */
export async function moveSession(
  deps: SaveDeps<Queries>,
  session: SessionRow,
  event: SessionEvent,
  details?: MoveDetails,
): Promise<SessionRow | undefined> {
  const move = decide(session, event);
  return move && (await saveMove(deps, session, move, details));
}

/**
 * Moves the session of an operation, and ends the operation or turns it into a `settle`. Retried until stored. `alongside` is
 * written in the same transaction.
 */
export async function commitMove(
  deps: SaveDeps<Database>,
  op: Operation,
  event: SessionEvent,
  { thenSettle, ...details }: Omit<MoveDetails, "operation"> & { thenSettle?: boolean } = {},
  alongside?: (tx: Queries) => Promise<void>,
): Promise<SessionRow | undefined> {
  const move = decide(op.session, event);
  if (!move) throw new Error(`a session that is ${op.session.state} refuses ${event}`);
  const operation = { id: op.id, thenSettle };
  const { by } = op.input;
  const save = (db: Queries) => saveMove({ ...deps, db }, op.session, move, { by, ...details, operation });
  if (!alongside) return await untilStored(() => save(deps.db));
  return await untilStored(() =>
    deps.db.transaction().execute(async (tx) => {
      const row = await save(tx);
      if (row) await alongside(tx);
      return row;
    }),
  );
}

/** Stores how the present machine runs, for one that was started before this was recorded. */
export async function saveIsolation(
  db: Queries,
  session: Standing & { id: string },
  { isolation }: NewMachine,
): Promise<void> {
  if (isolation) await updateMachine(db, session, { isolation });
}

/** Stores how long each stage of the present machine's start took. */
export async function saveTimings(
  db: Queries,
  session: Standing & { id: string },
  timings: CreateTiming,
): Promise<void> {
  await updateMachine(db, session, { timings: JSON.stringify(timings) });
}

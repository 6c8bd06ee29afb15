/** SQL of moves: one statement writes the session's row, its event and its audit entry. */
import { sql, type UpdateObject } from "kysely";
import { deleteArchivesOfMoved } from "../archive-records/columns.ts";
import { insertCaptureOfMoved } from "../artifact-records/columns.ts";
import { insertEntryOfMoved } from "../audit/columns.ts";
import type { newRow } from "../audit/entry.ts";
import { shredConnectionsOfMoved } from "../connections/columns.ts";
import type { Queries } from "../db/pool.ts";
import type { Tables } from "../db/tables.ts";
import { insertEventOfMoved } from "../events/columns.ts";
import { deleteSealedOfMoved } from "../secrets/columns.ts";
import { entersLive, entersPause, isCreating, type Move, type Standing } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import type { eventOfMove } from "./event-of-move.ts";
import type { MoveDetails } from "./save-move.ts";

/**
 * Writes row, event and audit entry in one statement. The event's number is drawn while the row is locked, so the events of a
 * session are numbered in the order of its moves. Undefined if the row moved since the decision, or if the operation in
 * it is not the one of `details`.
 */
export async function writeMove(
  db: Queries,
  id: string,
  move: Move,
  details: MoveDetails,
  {
    columns,
    emitted,
  }: {
    /** Assignments to the columns of other folders. */
    columns: UpdateObject<Tables, "sessions">;
    /** Absent for a move that changes nothing that a caller can see. */
    emitted?: { event: NonNullable<ReturnType<typeof eventOfMove>>; entry: ReturnType<typeof newRow> };
  },
): Promise<SessionRow | undefined> {
  let update = db
    .updateTable("sessions")
    .set({ ...columns, ...lifeColumns(move, details) })
    .where((row) => row.and({ id, state: move.from.state, incarnation: move.from.incarnation }))
    .returningAll()
    .$castTo<SessionRow>();
  if (details.operation) update = update.where("op_id", "=", details.operation.id);
  else if (!details.preempts) update = update.where("op", "is", null);
  if (!emitted) return await update.executeTakeFirst();
  let statement = db
    .with("moved", () => update)
    .with("written", (within) => insertEventOfMoved(within, emitted.event))
    .with("audited", (within) => insertEntryOfMoved(within, emitted.entry));
  if (move.endReason)
    statement = statement
      .with("shredded", deleteSealedOfMoved)
      .with("unbound", shredConnectionsOfMoved)
      .with("unarchived", deleteArchivesOfMoved);
  // A paused session has no machine to capture from.
  if (move.endReason && move.from.state === "live")
    statement = statement.with("captured", insertCaptureOfMoved);
  return await statement.selectFrom("moved").selectAll().executeTakeFirst();
}

function lifeColumns(move: Move, { statusReason, timings, machine, snapshot }: MoveDetails) {
  const now = sql<Date>`service_now()`;
  return {
    state: move.state,
    incarnation: move.incarnation,
    state_changed_at: now,
    ...(statusReason !== undefined && { status_reason: statusReason }),
    ...(timings && { timings: JSON.stringify(timings) }),
    ...(move.incarnation !== move.from.incarnation && {
      guest_ip: machine?.guest_ip ?? null,
      isolation: machine?.isolation ?? null,
    }),
    ...(entersLive(move) && { live_since: now, paused_at: null }),
    ...(entersLive(move) && !isCreating(move.from.state) && { resumed_at: now }),
    // When the snapshot was found on the node, the time of the pause is unknown: it counts from now.
    ...((entersPause(move) || move.event === "saved_state_found") && { paused_at: now }),
    ...(snapshot && { snapshot_id: snapshot.id, snapshot_bytes: snapshot.bytes }),
    pause_detail: null,
    ...(move.endReason && { ended_at: now, end_reason: move.endReason, machine_released_at: null }),
  };
}

/** Writes facts about the present machine, unless the session has another one by now. */
export async function updateMachine(
  db: Queries,
  { id, incarnation }: Standing & { id: string },
  facts: { timings: string } | { isolation: NonNullable<SessionRow["isolation"]> },
): Promise<void> {
  await db
    .updateTable("sessions")
    .set(facts)
    .where((row) => row.and({ id, incarnation }))
    .execute();
}

/** Records a snapshot that a row adopts although no operation of this database asked for it. */
export async function insertSnapshotName(db: Queries, id: string): Promise<void> {
  await db.insertInto("snapshot_names").values({ id }).execute();
}

/** Stores why a session stays live although it was to be paused. False if that is known. */
export async function savePauseDetail(db: Queries, id: string, detail: string): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable("sessions")
    .set({ pause_detail: detail })
    .where("id", "=", id)
    .where("state", "=", "live")
    .where("pause_detail", "is distinct from", detail)
    .executeTakeFirst();
  return numUpdatedRows > 0n;
}

/** A change that held the row's lock while the session ended may have sealed something that the end did not see. */
async function shredLate(db: Queries, id: string): Promise<void> {
  const ended = db.selectFrom("sessions").select("id").where("id", "=", id).where("ended_at", "is not", null);
  await db
    .updateTable("connections")
    .set({ sealed: null })
    .where("session_id", "in", ended)
    .where("sealed", "is not", null)
    .execute();
  await db.deleteFrom("sealed_values").where("session_id", "in", ended).execute();
}

export async function markReleased(db: Queries, id: string): Promise<void> {
  await shredLate(db, id);
  await db
    .updateTable("sessions")
    .set({ machine_released_at: sql<Date>`now()` })
    .where("id", "=", id)
    .execute();
}

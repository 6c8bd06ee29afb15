/** SQL of moves. */
import type { CreateTiming, EventType } from "@vivarium/contract/api";
import { sql, type UpdateObject } from "kysely";
import type { Queries } from "../db/pool.ts";
import type { Tables } from "../db/tables.ts";
import { newEventId } from "../events/append.ts";
import { entersLive, entersPause, isCreating, type Move, type Standing } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import type { MoveDetails } from "./save-move.ts";

interface MoveToWrite {
  id: string;
  move: Move;
  details: MoveDetails;
  /** What other rooms make of their columns. */
  columns: UpdateObject<Tables, "sessions">;
  event?: { type: EventType; data: Record<string, unknown> };
}

/**
 * The row and the event in one statement, which draws the event's number while it holds the session's row. Undefined
 * when the session does not stand any more where the move was decided.
 */
export async function writeMove(db: Queries, toWrite: MoveToWrite): Promise<SessionRow | undefined> {
  const { event } = toWrite;
  const update = updateOf(db, toWrite);
  if (!event) return (await update.executeTakeFirst()) as SessionRow | undefined;
  const row = await db
    .with("moved", () => update)
    .with("written", (within) =>
      within
        .insertInto("events")
        .columns(["id", "type", "org_id", "project_id", "session_id", "data"])
        .expression((eb) =>
          eb
            .selectFrom("moved")
            .select([
              sql<string>`${newEventId()}`.as("id"),
              sql<string>`${event.type}`.as("type"),
              "moved.org_id",
              "moved.project_id",
              "moved.id as session_id",
              sql<string>`${JSON.stringify(event.data)}::jsonb`.as("data"),
            ]),
        ),
    )
    .selectFrom("moved")
    .selectAll()
    .executeTakeFirst();
  return row as SessionRow | undefined;
}

function updateOf(db: Queries, { id, move, details, columns }: MoveToWrite) {
  let update = db
    .updateTable("sessions")
    .set({ ...columns, ...lifeColumns(move, details) })
    .where("id", "=", id)
    .where("state", "=", move.from.state)
    .where("incarnation", "=", move.from.incarnation);
  if (details.operation) update = update.where("op_id", "=", details.operation.id);
  else if (!details.overtakes) update = update.where("op", "is", null);
  return update.returningAll();
}

function lifeColumns(move: Move, { statusReason, timings, guestIp, snapshot }: MoveDetails) {
  const now = sql<Date>`service_now()`;
  return {
    state: move.state,
    incarnation: move.incarnation,
    state_changed_at: now,
    ...(statusReason !== undefined && { status_reason: statusReason }),
    ...(timings && { timings: JSON.stringify(timings) }),
    ...(move.incarnation !== move.from.incarnation && { guest_ip: guestIp ?? null }),
    ...(entersLive(move) && { live_since: now, paused_at: null }),
    ...(entersLive(move) && !isCreating(move.from.state) && { resumed_at: now }),
    // A saved state that was found is newer than the row: its rest begins no earlier than now.
    ...((entersPause(move) || move.event === "saved_state_found") && { paused_at: now }),
    ...(snapshot && { snapshot_id: snapshot.id, snapshot_bytes: snapshot.bytes }),
    ...(move.endReason && { ended_at: now, end_reason: move.endReason, machine_released_at: null }),
  };
}

export async function updateTimings(
  db: Queries,
  { id, incarnation }: Standing & { id: string },
  timings: CreateTiming,
): Promise<void> {
  await db
    .updateTable("sessions")
    .set({ timings: JSON.stringify(timings) })
    .where("id", "=", id)
    .where("incarnation", "=", incarnation)
    .execute();
}

export async function markReleased(db: Queries, id: string): Promise<void> {
  await db
    .updateTable("sessions")
    .set({ machine_released_at: sql<Date>`now()` })
    .where("id", "=", id)
    .execute();
}

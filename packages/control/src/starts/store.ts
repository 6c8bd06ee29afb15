/** SQL of new sessions. */
import type { Insertable, RawBuilder } from "kysely";
import type { Queries } from "../db/pool.ts";
import { isUniqueViolation } from "../db/postgres-errors.ts";
import type { SessionTable } from "../db/tables.ts";
import { appendEvents, eventOf } from "../events/append.ts";
import type { SessionRow } from "../sessions/store.ts";

/** Leases of a new session are SQL expressions, because the database's clock starts and ends them. */
type Leases = "destroy_after" | "provision_claimed_until";
export type NewSession = Omit<Insertable<SessionTable>, Leases> & { [lease in Leases]?: RawBuilder<Date> };

export async function insertSession(db: Queries, session: NewSession): Promise<SessionRow | "name_taken"> {
  try {
    const [row] = await insertSessions(db, [session]);
    return row as SessionRow;
  } catch (error) {
    if (isUniqueViolation(error, "sessions_name")) return "name_taken";
    throw error;
  }
}

/** Inserts sessions and their events, in the caller's transaction. */
export async function insertSessions(db: Queries, sessions: readonly NewSession[]): Promise<SessionRow[]> {
  const rows = (await db.insertInto("sessions").values(sessions).returningAll().execute()) as SessionRow[];
  const events = rows.map((row) =>
    eventOf(row, "session.created", {
      state: row.state,
      ...(row.origin_checkpoint_id !== null && { checkpoint_id: row.origin_checkpoint_id }),
    }),
  );
  await appendEvents(db, events);
  return rows;
}

/** Sets the reason why the session is still being created. */
export async function setStatusDetail(db: Queries, id: string, detail: string): Promise<void> {
  await db
    .updateTable("sessions")
    .set({ status_detail: detail })
    .where("id", "=", id)
    .where("state", "=", "creating")
    .execute();
}

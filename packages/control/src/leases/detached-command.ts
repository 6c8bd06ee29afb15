/** SQL of detached commands: the only command of a session, running without a listener after a pause and a wake. */
import { sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import { findSessions, type SessionRow } from "../sessions/store.ts";

export async function listWithDetachedCommand(db: Queries): Promise<SessionRow[]> {
  return await findSessions(db)
    .where("command_goes_on", "=", true)
    .where("state", "=", "live")
    .where("op", "is", null)
    // Random order, so that guests which never answer do not keep others from being asked.
    .orderBy(sql`random()`)
    .limit(100)
    .execute();
}

/** Makes the session due for destruction, unless it got another machine or another command since. */
export async function expireDetachedCommand(db: Queries, { id, incarnation }: SessionRow): Promise<void> {
  await db
    .updateTable("sessions")
    .set({ destroy_after: sql<Date>`now()`, command_goes_on: false })
    .where("id", "=", id)
    .where("incarnation", "=", incarnation)
    .where("command_goes_on", "=", true)
    .where("state", "=", "live")
    .where("op", "is", null)
    .execute();
}

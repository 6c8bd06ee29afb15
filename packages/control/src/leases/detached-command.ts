/** Sessions whose only command runs on without a listener. */
import { sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import type { SessionRow } from "../sessions/store.ts";

/** Live sessions whose only command goes on without a listener. */
export async function listWithDetachedCommand(db: Queries): Promise<SessionRow[]> {
  const rows = await db
    .selectFrom("sessions")
    .selectAll()
    .where("command_goes_on", "=", true)
    .where("state", "=", "live")
    .where("op", "is", null)
    // Any of them, where they are many: one whose guest never answers is not to keep another from being asked.
    .orderBy(sql`random()`)
    .limit(100)
    .execute();
  return rows as SessionRow[];
}

/** The session is due, unless a copy of its past has taken its place, or another command has begun in it. */
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

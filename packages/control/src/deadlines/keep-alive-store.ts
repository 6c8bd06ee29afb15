/** SQL of the note that a process may keep a session from being idle. */
import type { Queries } from "../db/pool.ts";

export async function setMayKeepAlive(db: Queries, id: string): Promise<void> {
  await db.updateTable("sessions").set({ may_keep_alive: true }).where("id", "=", id).execute();
}

import type { Queries } from "../db/pool.ts";
import type { SessionRow } from "../sessions/store.ts";

/** From now on the session's machine is asked for its processes before the session is taken for idle. */
export async function noteKeepAlive(db: Queries, { id, may_keep_alive: isNoted }: SessionRow): Promise<void> {
  if (!isNoted) await db.updateTable("sessions").set({ may_keep_alive: true }).where("id", "=", id).execute();
}

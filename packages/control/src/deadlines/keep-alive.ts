import type { Queries } from "../db/pool.ts";
import type { SessionRow } from "../sessions/store.ts";

/** From now on the machine is asked for its processes before the session counts as idle. */
export async function setMayKeepAlive(
  db: Queries,
  { id, may_keep_alive: isNoted }: SessionRow,
): Promise<void> {
  if (!isNoted) await db.updateTable("sessions").set({ may_keep_alive: true }).where("id", "=", id).execute();
}

import type { Queries } from "../db/pool.ts";
import type { SessionRow } from "../sessions/store.ts";

/** Notes that the guest may have `keep_alive` processes: it is asked for them before the session counts as idle. */
export async function setMayKeepAlive(
  db: Queries,
  { id, may_keep_alive: isNoted }: SessionRow,
): Promise<void> {
  if (!isNoted) await db.updateTable("sessions").set({ may_keep_alive: true }).where("id", "=", id).execute();
}

import type { Queries } from "../db/pool.ts";
import type { SessionRow } from "../sessions/store.ts";
import { setMayKeepAlive } from "./keep-alive-store.ts";

/** From now on the session's machine is asked for its processes before the session is taken for idle. */
export async function noteKeepAlive(db: Queries, session: SessionRow): Promise<void> {
  if (!session.may_keep_alive) await setMayKeepAlive(db, session.id);
}

/** Emits the event of Connections that have expired. The gateway refuses them by its own clock, without this. */
import { originOf } from "../connection-records/status.ts";
import type { Database } from "../db/pool.ts";
import { appendEvents, eventOf } from "../events/append.ts";
import { findSessions } from "../sessions/store.ts";
import { markExpired } from "./store.ts";

const AT_ONCE = 500;

export async function emitExpired({ db }: { db: Database }): Promise<void> {
  await db.transaction().execute(async (tx) => {
    const expired = await markExpired(tx, AT_ONCE);
    if (expired.length === 0) return;
    const ids = expired.map(({ session_id }) => session_id);
    const sessions = new Map(
      (await findSessions(tx).where("id", "in", ids).where("ended_at", "is", null).execute()).map((row) => [
        row.id,
        row,
      ]),
    );
    await appendEvents(
      tx,
      expired.flatMap((row) => {
        const session = sessions.get(row.session_id);
        const data = { name: row.name, origin: originOf(row) };
        return session ? [eventOf(session, "connection.expired", data)] : [];
      }),
    );
  });
}

import { sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import { WAKES_FROM } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";

/**
 * Sets or clears the scheduled wake of a paused session. Undefined if the session moved, an operation is in flight, or
 * `known` is given and the stored time differs from it.
 */
export async function saveWakeAt(
  db: Queries,
  id: string,
  { wakeAt, retryAt, dropAt }: { wakeAt: Date | null; retryAt?: Date; dropAt?: Date },
  known?: Date | null,
): Promise<SessionRow | undefined> {
  let update = db
    .updateTable("sessions")
    .set({
      wake_at: wakeAt,
      wake_retry_at: retryAt ?? null,
      wake_drop_at: dropAt ?? null,
      due_at: sql<Date>`service_now()`,
    })
    .where("id", "=", id)
    .where("state", "=", WAKES_FROM)
    .where("op", "is", null)
    .returningAll()
    .$castTo<SessionRow>();
  if (known !== undefined) update = update.where(sql<boolean>`wake_at is not distinct from ${known}`);
  return await update.executeTakeFirst();
}

/** SQL for sessions that are due: claim them, read their clocks, set the next check. Times are by `service_now()`. */
import { sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import { findSessions, type SessionRow } from "../sessions/store.ts";
import type { ClockRow } from "./clocks.ts";

/** A session with the times that decide its deadlines. Ends of leases are converted from `now()` to `service_now()`. */
export type DueSession = SessionRow & { now: Date } & Required<
    Pick<ClockRow, "pty_until" | "tunnel_until" | "used_until">
  >;

const CLOCK_COLUMNS = [
  sql<Date>`service_now()`.as("now"),
  sql<Date | null>`service_now() + (busy_until - now())`.as("used_until"),
  attachedUntil("pty").as("pty_until"),
  attachedUntil("tunnel").as("tunnel_until"),
];

/** When the last lease of this kind on the present machine ended, or will end; null without any lease. */
function attachedUntil(kind: "pty" | "tunnel") {
  return sql<Date | null>`(
    select service_now() + (max(lease_until) - now()) from attachments
    where session_id = sessions.id and attachments.incarnation = sessions.incarnation and kind = ${sql.lit(kind)}
  )`;
}

/**
 * Claims due sessions for `leaseMs`; then another process may claim them. Sessions with an operation in flight are
 * skipped: the end of the operation makes them due again.
 */
export async function claimDueSessions(db: Queries, limit: number, leaseMs: number): Promise<DueSession[]> {
  const taken = await db
    .updateTable("sessions")
    .set({
      due_at: sql<Date>`service_now() + make_interval(secs => ${leaseMs / 1000})`,
      due_claim: sql<string>`gen_random_uuid()`,
    })
    .where("id", "in", (eb) =>
      eb
        .selectFrom("sessions")
        .select("id")
        .where("due_at", "<=", sql<Date>`service_now()`)
        .where("op", "is", null)
        .orderBy("due_at")
        .limit(limit)
        .forUpdate()
        .skipLocked(),
    )
    .returning(["id", "due_claim"])
    .execute();
  if (taken.length === 0) return [];
  // Race: the statement above may find a detach in the row that was committed after its snapshot, and would still read
  // the client's old lease. A second statement has a newer snapshot.
  const ids = taken.map(({ id }) => id);
  const claims = taken.map(({ due_claim: claim }) => claim);
  return await findSessions(db)
    .select(CLOCK_COLUMNS)
    .where("id", "in", ids)
    .where("due_claim", "in", claims)
    .execute();
}

/** Locks the session's row and reads its clock inputs. No client can attach until the transaction ends. */
export async function lockForClocks(tx: Queries, id: string): Promise<DueSession | undefined> {
  await tx.selectFrom("sessions").select("id").where("id", "=", id).forUpdate().execute();
  // A second statement, so that changes committed while this one waited for the lock are seen.
  return await findSessions(tx).select(CLOCK_COLUMNS).where("id", "=", id).executeTakeFirst();
}

/**
 * Sets the next check. Does nothing if the session moved or was claimed again since: then this result may be outdated,
 * and the move or the new claim sets the next check.
 */
export async function saveDueAt(db: Queries, taken: SessionRow, dueAt: Date | null): Promise<void> {
  await db
    .updateTable("sessions")
    .set({ due_at: dueAt })
    .where("id", "=", taken.id)
    .where("due_at", "=", taken.due_at)
    .where("due_claim", "=", taken.due_claim)
    .execute();
}

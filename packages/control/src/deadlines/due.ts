/** Sessions that are due: taken for a look at their clocks, and told when the next look is. By `service_now()`. */
import { sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import type { SessionRow } from "../sessions/store.ts";
import type { ClockRow } from "./clocks.ts";

/** Leases are on another clock than deadlines: here they are told as instants of the deadlines' clock. */
export type DueSession = SessionRow & { now: Date } & Required<
    Pick<ClockRow, "pty_until" | "tunnel_until" | "used_until">
  >;

const CLOCK_COLUMNS = [
  sql<Date>`service_now()`.as("now"),
  sql<Date | null>`service_now() + (busy_until - now())`.as("used_until"),
  attachedUntil("pty").as("pty_until"),
  attachedUntil("tunnel").as("tunnel_until"),
];

/** When the last client of this kind left, or will count as gone; null: the machine never had one. */
function attachedUntil(kind: "pty" | "tunnel") {
  return sql<Date | null>`(
    select service_now() + (max(lease_until) - now()) from attachments
    where session_id = sessions.id and attachments.incarnation = sessions.incarnation and kind = ${sql.lit(kind)}
  )`;
}

/**
 * Sessions whose deadlines want a look, taken for `leaseMs`: a process that dies with one leaves it to the next. Those
 * that an operation holds are looked at when it ends.
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
  // A statement of its own: the one above may have begun before a client's leave that it then found in the row, and would
  // see the client still there.
  const rows = await db
    .selectFrom("sessions")
    .selectAll()
    .select(CLOCK_COLUMNS)
    .where(
      "id",
      "in",
      taken.map(({ id }) => id),
    )
    .where(
      "due_claim",
      "in",
      taken.map(({ due_claim: claim }) => claim),
    )
    .execute();
  return rows as DueSession[];
}

/** The session as its clocks see it, held until the transaction ends: no client attaches meanwhile. */
export async function lockForClocks(tx: Queries, id: string): Promise<DueSession | undefined> {
  await tx.selectFrom("sessions").select("id").where("id", "=", id).forUpdate().execute();
  // A statement of its own: what was committed while the lock was waited for counts.
  const row = await tx
    .selectFrom("sessions")
    .selectAll()
    .select(CLOCK_COLUMNS)
    .where("id", "=", id)
    .executeTakeFirst();
  return row as DueSession | undefined;
}

/**
 * Says when to look next, unless the session moved since it was taken, or was taken by somebody else: then what was seen
 * here may be old, and it has been said already or will be.
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

/** SQL of the clocks of sessions: when each was used, what is due, all by `service_now()`. */
import { sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import { type SessionRow, WAKES_FROM } from "../sessions/store.ts";
import type { ClockRow } from "./clocks.ts";

/** An operation in flight is written down about every second; a process that died holds nothing for longer than this. */
const BUSY_LEASE_MS = 3_000;
/** What is left of that when the last of them ends here: time for another process to say that it has one as well. */
const BUSY_REST_MS = 1_500;

interface Sighting {
  id: string;
  at: Date;
  ageMs: number;
  /** An operation is in flight, or the last one of this process has just ended. */
  use?: "busy" | "done";
}

/**
 * Moves `last_active_at` forward for several sessions at once; never back. Where our clock agrees with the one of the
 * deadlines to a second, what readers were shown is what is written; otherwise the age counts.
 */
export async function saveActivity(db: Queries, seen: Sighting[]): Promise<void> {
  const ids = seen.map(({ id }) => id);
  const times = seen.map(({ at }) => at.toISOString());
  const ages = seen.map(({ ageMs }) => ageMs);
  const uses = seen.map(({ use = "" }) => use);
  await sql`update sessions set last_active_at = seen.at, busy_until = case seen.use
      when 'busy' then now() + make_interval(secs => ${BUSY_LEASE_MS / 1000})
      when 'done' then least(busy_until, now() + make_interval(secs => ${BUSY_REST_MS / 1000}))
      else busy_until
    end
    from (
      select id, use, case
        when abs(extract(epoch from service_now() - ${new Date().toISOString()}::timestamptz)) < 1 then given.at
        else service_now() - make_interval(secs => age / 1000)
      end as at
      from unnest(${ids}::text[], ${times}::timestamptz[], ${ages}::float8[], ${uses}::text[])
        as given (id, at, age, use)
    ) as seen
    where sessions.id = seen.id and sessions.last_active_at < seen.at and sessions.state <> 'destroyed'`.execute(
    db,
  );
}

/** The instant that deadlines are measured by. */
export async function serviceNow(db: Queries): Promise<Date> {
  const found = await sql<{ now: Date }>`select service_now() as now`.execute(db);
  return found.rows[0]?.now ?? new Date();
}

/**
 * Sets or clears when a paused session wakes by itself; undefined when it moved, something holds it, or somebody has set
 * another instant than the one that is given as known.
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
    .where("op", "is", null);
  if (known !== undefined) update = update.where(sql<boolean>`wake_at is not distinct from ${known}`);
  return (await update.returningAll().executeTakeFirst()) as SessionRow | undefined;
}

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

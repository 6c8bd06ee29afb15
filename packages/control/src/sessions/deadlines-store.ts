/** SQL of the clocks of sessions: when each was used, what is due, all by `service_now()`. */
import { sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import { type SessionRow, WAKES_FROM } from "./store.ts";

/**
 * Moves `last_active_at` forward for several sessions at once; never back. Where our clock agrees with the one of the
 * deadlines to a second, what readers were shown is what is written; otherwise the age counts.
 */
export async function saveActivity(
  db: Queries,
  seen: { id: string; at: Date; ageMs: number }[],
): Promise<void> {
  const ids = seen.map(({ id }) => id);
  const times = seen.map(({ at }) => at.toISOString());
  const ages = seen.map(({ ageMs }) => ageMs);
  await sql`update sessions set last_active_at = seen.at
    from (
      select id, case
        when abs(extract(epoch from service_now() - ${new Date().toISOString()}::timestamptz)) < 1 then given.at
        else service_now() - make_interval(secs => age / 1000)
      end as at
      from unnest(${ids}::text[], ${times}::timestamptz[], ${ages}::float8[]) as given (id, at, age)
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

/** Sets or clears when a paused session wakes by itself; undefined when it moved, or something holds it. */
export async function saveWakeAt(
  db: Queries,
  id: string,
  { wakeAt, retryAt, dropAt }: { wakeAt: Date | null; retryAt?: Date; dropAt?: Date },
): Promise<SessionRow | undefined> {
  const row = await db
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
    .executeTakeFirst();
  return row as SessionRow | undefined;
}

export type DueSession = SessionRow & { now: Date };

/**
 * Sessions whose deadlines want a look, taken for `leaseMs`: a process that dies with one leaves it to the next. Those
 * that an operation holds are looked at when it ends.
 */
export async function claimDueSessions(db: Queries, limit: number, leaseMs: number): Promise<DueSession[]> {
  const rows = await db
    .updateTable("sessions")
    .set({ due_at: sql<Date>`service_now() + make_interval(secs => ${leaseMs / 1000})` })
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
    .returningAll()
    .returning(sql<Date>`service_now()`.as("now"))
    .execute();
  return rows as DueSession[];
}

/** Says when to look next, unless the session moved since it was taken: then somebody has said so already. */
export async function saveDueAt(db: Queries, taken: SessionRow, dueAt: Date | null): Promise<void> {
  await db
    .updateTable("sessions")
    .set({ due_at: dueAt })
    .where("id", "=", taken.id)
    .where("due_at", "=", taken.due_at)
    .execute();
}

/**
 * Leases of sessions: what happens to a session by itself when its owner gives no sign of life. The sweep destroys a
 * session whose lease has ended.
 */
import { type RawBuilder, sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import type { SessionRow } from "../sessions/store.ts";

/** The end of a lease that begins with an insert, however long its transaction waited before. */
export function leaseFromNow(ms: number): RawBuilder<Date> {
  return sql<Date>`clock_timestamp() + make_interval(secs => ${ms / 1000})`;
}

/** Puts off, or brings on, the instant from which the sweep destroys the session. */
export async function leaseSession(db: Queries, id: string, delayMs: number): Promise<void> {
  await db
    .updateTable("sessions")
    .set({ destroy_after: after(delayMs), command_left_ms: null })
    .where("id", "=", id)
    .where("state", "<>", "destroyed")
    .execute();
}

/** An instant that was written, and what stood in the row before. */
export interface Lease {
  until: Date;
  before: { until: Date | null; goesOn: boolean };
}

/** Puts that instant at least `delayMs` off. A command that begins now has a listener, whose end counts from here. */
export async function extendLease(db: Queries, id: string, delayMs: number): Promise<Lease | undefined> {
  // Whole milliseconds: what is told can be compared with what is stored.
  const least = sql<Date>`date_trunc('milliseconds', ${after(delayMs)})`;
  const { rows } = await sql<{ until: Date; was_until: Date | null; went_on: boolean }>`
    with old as (
      select id, destroy_after, command_goes_on from sessions
       where id = ${id} and state <> 'destroyed' for update
    )
    update sessions set destroy_after = greatest(sessions.destroy_after, ${least}), command_goes_on = false
      from old where sessions.id = old.id
    returning sessions.destroy_after as until, old.destroy_after as was_until, old.command_goes_on as went_on`.execute(
    db,
  );
  const [row] = rows;
  return row && { until: row.until, before: { until: row.was_until, goesOn: row.went_on } };
}

/**
 * The row is as it was before, unless another instant was written since. A wake writes one: a command that goes on after it
 * can only be the one that this lease was for.
 */
export async function revertLease(db: Queries, id: string, { until, before }: Lease): Promise<void> {
  await db
    .updateTable("sessions")
    .set({
      destroy_after: before.until,
      command_goes_on: before.goesOn,
      ...(before.until === null && { command_left_ms: null }),
    })
    .where("id", "=", id)
    .where((or) => or.or([or("destroy_after", "=", until), or("command_goes_on", "=", true)]))
    .execute();
}

export async function listDueForDestroy(db: Queries, lapsedBefore: Date): Promise<SessionRow[]> {
  const rows = await db
    .selectFrom("sessions")
    .selectAll()
    .where("destroy_after", "<", lapsedBefore)
    .where("command_left_ms", "is", null)
    .where("state", "<>", "destroyed")
    .limit(100)
    .execute();
  return rows as SessionRow[];
}

function after(ms: number) {
  return sql<Date>`now() + make_interval(secs => ${ms / 1000})`;
}

/** SQL of leases of sessions. The sweep destroys a session whose lease has lapsed. */
import { type RawBuilder, sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import { leaseEnd } from "../db/time.ts";
import { findSessions, type SessionRow } from "../sessions/store.ts";

/** The end of a new row's lease, counted from the present: the start of the transaction (`now()`) may be long past. */
export function leaseFromNow(ms: number): RawBuilder<Date> {
  return sql<Date>`clock_timestamp() + make_interval(secs => ${ms / 1000})`;
}

/** Sets when the sweep destroys the session, earlier or later than before. */
export async function leaseSession(db: Queries, id: string, delayMs: number): Promise<void> {
  await db
    .updateTable("sessions")
    .set({ destroy_after: leaseEnd(delayMs), command_left_ms: null })
    .where("id", "=", id)
    .where("state", "<>", "destroyed")
    .execute();
}

/** An extended lease, and the values that it replaced. */
export interface Lease {
  until: Date;
  before: { until: Date | null; isDetached: boolean };
}

/** Extends the lease to at least `delayMs` from now. A command that starts now has a listener: not detached. */
export async function extendLease(db: Queries, id: string, delayMs: number): Promise<Lease | undefined> {
  // Whole milliseconds, because a JavaScript date must compare equal to the stored value.
  const least = sql<Date>`date_trunc('milliseconds', ${leaseEnd(delayMs)})`;
  const { rows } = await sql<{ until: Date; was_until: Date | null; was_detached: boolean }>`
    with old as (
      select id, destroy_after, command_goes_on from sessions
       where id = ${id} and state <> 'destroyed' for update
    )
    update sessions set destroy_after = greatest(sessions.destroy_after, ${least}), command_goes_on = false
      from old where sessions.id = old.id
    returning sessions.destroy_after as until, old.destroy_after as was_until, old.command_goes_on as was_detached`.execute(
    db,
  );
  const [row] = rows;
  return row && { until: row.until, before: { until: row.was_until, isDetached: row.was_detached } };
}

/**
 * Reverts an extension, unless the lease was changed since. A wake changes it too, but a command that is detached after
 * the wake can only be the one that this extension was for.
 */
export async function revertLease(db: Queries, id: string, { until, before }: Lease): Promise<void> {
  await db
    .updateTable("sessions")
    .set({
      destroy_after: before.until,
      command_goes_on: before.isDetached,
      ...(before.until === null && { command_left_ms: null }),
    })
    .where("id", "=", id)
    .where((or) => or.or([or("destroy_after", "=", until), or("command_goes_on", "=", true)]))
    .execute();
}

export async function listDueForDestroy(db: Queries, lapsedBefore: Date): Promise<SessionRow[]> {
  return await findSessions(db)
    .where("destroy_after", "<", lapsedBefore)
    .where("command_left_ms", "is", null)
    .where("state", "<>", "destroyed")
    .limit(100)
    .execute();
}

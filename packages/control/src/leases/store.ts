/** SQL of leases: what happens to a session by itself when nobody gives a sign of life for it. */
import type { EndReason } from "@vivarium/contract/api";
import { type RawBuilder, sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import { FIRST_STATE } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";

/** The end of a lease that begins with an insert, however long its transaction waited before. */
export function leaseFromNow(ms: number): RawBuilder<Date> {
  return sql<Date>`clock_timestamp() + make_interval(secs => ${ms / 1000})`;
}

/** Puts off, or brings on, the instant from which the sweep destroys the session. */
export async function setDestroyAfter(db: Queries, id: string, delayMs: number): Promise<void> {
  await db
    .updateTable("sessions")
    .set({ destroy_after: after(delayMs), command_left_ms: null })
    .where("id", "=", id)
    .where("state", "<>", "destroyed")
    .execute();
}

/** An instant that was written, and what stood in the row before. */
export interface Extended {
  until: Date;
  before: { until: Date | null; goesOn: boolean };
}

/** Puts that instant at least `delayMs` off. A command that begins now has a listener, whose end counts from here. */
export async function extendDestroyAfter(
  db: Queries,
  id: string,
  delayMs: number,
): Promise<Extended | undefined> {
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
export async function takeBackExtension(db: Queries, id: string, { until, before }: Extended): Promise<void> {
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

/** Renews leases of sessions that are being made. One that ran out stays so: the sweep may be at work already. */
export async function renewLeases(db: Queries, ids: readonly string[], leaseMs: number): Promise<void> {
  await db
    .updateTable("sessions")
    .set({ destroy_after: after(leaseMs) })
    .where("id", "in", ids)
    .where("state", "=", FIRST_STATE)
    .where("destroy_after", ">", sql<Date>`clock_timestamp()`)
    .execute();
}

/** The sessions belong to themselves from now on; false when a lease among them had run out. */
export async function endLeases(db: Queries, ids: readonly string[]): Promise<boolean> {
  const rows = await db
    .updateTable("sessions")
    .set({ destroy_after: null })
    .where("id", "in", ids)
    .where("destroy_after", ">", sql<Date>`clock_timestamp()`)
    .returning("id")
    .execute();
  return rows.length === ids.length;
}

const UNBORN: EndReason = "error";

/**
 * Removes the history of sessions that came to nothing before they were handed out, once nothing of them is on a node.
 * One that its caller destroyed keeps its history.
 */
export async function forgetUnborn(db: Queries, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return;
  await db
    .deleteFrom("sessions")
    .where("id", "in", ids)
    .where("incarnation", "=", 0)
    .where("end_reason", "=", UNBORN)
    .where("machine_released_at", "is not", null)
    .execute();
}

/** Renews the lease on a session that this process provisions; false when the session is no longer creating. */
export async function renewProvisionClaim(db: Queries, id: string, leaseMs: number): Promise<boolean> {
  const rows = await db
    .updateTable("sessions")
    .set({ provision_claimed_until: after(leaseMs) })
    .where("id", "=", id)
    .where("state", "=", "creating")
    .returning("id")
    .execute();
  return rows.length > 0;
}

/**
 * Takes over sessions whose provisioning nobody holds: their process died. With how long ago they were asked for. Those
 * that are leased until they are handed out are not wanted without it.
 */
export async function claimOrphanedProvisions(
  db: Queries,
  { leaseMs, lapsedBefore }: { leaseMs: number; lapsedBefore: Date },
): Promise<{ session: SessionRow; ageMs: number }[]> {
  const rows = await db
    .updateTable("sessions")
    .set({ provision_claimed_until: after(leaseMs) })
    .where("id", "in", (eb) =>
      eb
        .selectFrom("sessions")
        .select("id")
        .where("state", "=", "creating")
        .where((or) => or.or([or("origin", "=", "run"), or("destroy_after", "is", null)]))
        .where((or) =>
          or.or([
            or("provision_claimed_until", "is", null),
            or("provision_claimed_until", "<", lapsedBefore),
          ]),
        )
        .limit(50)
        .forUpdate()
        .skipLocked(),
    )
    .returningAll()
    .returning(
      sql<number>`greatest(0, extract(epoch from clock_timestamp() - created_at))::float8 * 1000`.as(
        "age_ms",
      ),
    )
    .execute();
  return rows.map(({ age_ms: ageMs, ...session }) => ({ session: session as SessionRow, ageMs }));
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

/** Live sessions whose only command goes on without a listener. */
export async function listUnheard(db: Queries): Promise<SessionRow[]> {
  const rows = await db
    .selectFrom("sessions")
    .selectAll()
    .where("command_goes_on", "=", true)
    .where("state", "=", "live")
    .where("op", "is", null)
    // Any of them, where they are many: one whose guest never answers is not to keep another from being asked.
    .orderBy(sql`random()`)
    .limit(100)
    .execute();
  return rows as SessionRow[];
}

/** The session is due, unless a copy of its past has taken its place, or another command has begun in it. */
export async function endUnheard(db: Queries, { id, incarnation }: SessionRow): Promise<void> {
  await db
    .updateTable("sessions")
    .set({ destroy_after: after(0), command_goes_on: false })
    .where("id", "=", id)
    .where("incarnation", "=", incarnation)
    .where("command_goes_on", "=", true)
    .where("state", "=", "live")
    .where("op", "is", null)
    .execute();
}

function after(ms: number) {
  return sql<Date>`now() + make_interval(secs => ${ms / 1000})`;
}

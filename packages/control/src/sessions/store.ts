import { type CreateTiming, type EndReason, LIMITS, type SessionState } from "@vivarium/contract/api";
import { type Insertable, type Selectable, sql } from "kysely";
import type { Scope } from "../access/principal.ts";
import type { Queries } from "../db/pool.ts";
import { isUniqueViolation } from "../db/postgres-errors.ts";
import type { SessionTable } from "../db/tables.ts";
import {
  ACTIVE_STATES,
  entersLife,
  entersRest,
  FIRST_STATE,
  hasClocks,
  isAwaited,
  type Move,
} from "./state.ts";

export type SessionRow = Omit<Selectable<SessionTable>, "state"> & { state: SessionState };
type NewSession = Insertable<SessionTable>;

export async function insertSession(db: Queries, session: NewSession): Promise<SessionRow | "name_taken"> {
  try {
    const row = await db.insertInto("sessions").values(session).returningAll().executeTakeFirstOrThrow();
    return row as SessionRow;
  } catch (error) {
    if (isUniqueViolation(error, "sessions_name")) return "name_taken";
    throw error;
  }
}

/** Sessions without names, so that none can be taken. */
export async function insertNameless(
  db: Queries,
  sessions: readonly Omit<NewSession, "name">[],
): Promise<SessionRow[]> {
  return (await db.insertInto("sessions").values(sessions).returningAll().execute()) as SessionRow[];
}

export async function isNameTaken(db: Queries, orgId: string, name: string): Promise<boolean> {
  const row = await db
    .selectFrom("sessions")
    .select("id")
    .where("org_id", "=", orgId)
    .where("name", "=", name)
    .where("state", "<>", "destroyed")
    .executeTakeFirst();
  return row !== undefined;
}

const WAKES_FROM: SessionState = "paused";

/** Sessions that hold a slot: all of the organisation, and those made with one key. */
export async function countActive(
  db: Queries,
  orgId: string,
  keyId: string,
): Promise<{ org: number; key: number }> {
  return await db
    .selectFrom("sessions")
    .select([
      sql<number>`count(*)::int`.as("org"),
      sql<number>`(count(*) filter (where key_id = ${keyId}))::int`.as("key"),
    ])
    .where("org_id", "=", orgId)
    .where((eb) =>
      eb.or([
        eb("state", "in", [...ACTIVE_STATES]),
        // A session that is waking up holds its slot already.
        eb.and([eb("state", "=", WAKES_FROM), eb("op", "in", ["wake", "restore"])]),
      ]),
    )
    .executeTakeFirstOrThrow();
}

export async function countPaused(db: Queries, orgId: string): Promise<number> {
  const { count } = await db
    .selectFrom("sessions")
    .select(sql<number>`count(*)::int`.as("count"))
    .where("org_id", "=", orgId)
    .where("state", "in", ["paused", "lifetime_expired"])
    .executeTakeFirstOrThrow();
  return count;
}

/** Any row of the caller's, history included. */
export async function findAnySession(db: Queries, scope: Scope, id: string): Promise<SessionRow | undefined> {
  let query = db.selectFrom("sessions").selectAll().where("id", "=", id).where("org_id", "=", scope.orgId);
  if (scope.projectId) query = query.where("project_id", "=", scope.projectId);
  return (await query.executeTakeFirst()) as SessionRow | undefined;
}

/** A row by id alone, for work that acts for nobody in particular. */
export async function findSessionById(db: Queries, id: string): Promise<SessionRow | undefined> {
  return (await db.selectFrom("sessions").selectAll().where("id", "=", id).executeTakeFirst()) as
    | SessionRow
    | undefined;
}

export interface Extra {
  statusReason?: string;
  timings?: CreateTiming;
  /**
   * The operation that this move commits and thereby ends, or that goes over to settling the session's machines.
   * Without one the move is refused while an operation holds the session, unless it overtakes.
   */
  operation?: { id: string; thenSettle?: boolean };
  overtakes?: boolean;
  snapshot?: { id: string; bytes: number };
  wakeAt?: Date | null;
}

/** Writes a decided move, if the session still stands where it was decided on. */
export async function saveMove(
  db: Queries,
  id: string,
  move: Move,
  extra: Extra = {},
): Promise<SessionRow | undefined> {
  const now = sql<Date>`service_now()`;
  let update = db
    .updateTable("sessions")
    .set({
      state: move.state,
      incarnation: move.incarnation,
      state_changed_at: now,
      status_detail: null,
      provision_claimed_until: null,
      // The sweep finds out what is due when; better too early than too late.
      due_at: hasClocks(move.state) ? now : null,
      ...(extra.statusReason !== undefined && { status_reason: extra.statusReason }),
      ...(extra.timings && { timings: JSON.stringify(extra.timings) }),
      ...(move.incarnation !== move.from.incarnation && { last_active_at: now }),
      wake_at: extra.wakeAt ?? null,
      wake_retry_at: null,
      wake_drop_at: null,
      ...(entersLife(move) && { live_since: now, paused_at: null }),
      ...(entersLife(move) && !isAwaited(move.from.state) && { resumed_at: now }),
      ...(entersRest(move) && { paused_at: now }),
      ...(extra.snapshot && { snapshot_id: extra.snapshot.id, snapshot_bytes: extra.snapshot.bytes }),
      ...(extra.operation && operationAfter(extra.operation)),
      ...(move.endReason && { ended_at: now, end_reason: move.endReason, machine_released_at: null }),
    })
    .where("id", "=", id)
    .where("state", "=", move.from.state)
    .where("incarnation", "=", move.from.incarnation);
  if (extra.operation) update = update.where("op_id", "=", extra.operation.id);
  else if (!extra.overtakes) update = update.where("op", "is", null);
  return (await update.returningAll().executeTakeFirst()) as SessionRow | undefined;
}

function operationAfter({ thenSettle }: { thenSettle?: boolean }) {
  if (thenSettle) return { op: "settle" as const, op_input: "{}" };
  return { op: null, op_id: null, op_input: null, op_claimed_until: null };
}

export async function markReleased(db: Queries, id: string): Promise<void> {
  await db
    .updateTable("sessions")
    .set({ machine_released_at: sql<Date>`now()` })
    .where("id", "=", id)
    .execute();
}

export async function setStatusDetail(db: Queries, id: string, detail: string): Promise<void> {
  await db
    .updateTable("sessions")
    .set({ status_detail: detail })
    .where("id", "=", id)
    .where("state", "=", "creating")
    .execute();
}

/** Puts off, or brings on, the instant from which the sweep destroys the session. */
export async function setDestroyAfter(db: Queries, id: string, delayMs: number): Promise<void> {
  await db
    .updateTable("sessions")
    .set({ destroy_after: after(delayMs) })
    .where("id", "=", id)
    .where("state", "<>", "destroyed")
    .execute();
}

/** Puts that instant at least `delayMs` off, and tells it. */
export async function extendDestroyAfter(
  db: Queries,
  id: string,
  delayMs: number,
): Promise<Date | undefined> {
  // Whole milliseconds: what is told can be compared with what is stored.
  const least = sql<Date>`date_trunc('milliseconds', ${after(delayMs)})`;
  const row = await db
    .updateTable("sessions")
    .set({ destroy_after: sql<Date>`greatest(destroy_after, ${least})` })
    .where("id", "=", id)
    .where("state", "<>", "destroyed")
    .returning("destroy_after")
    .executeTakeFirst();
  return row?.destroy_after ?? undefined;
}

/** The sweep leaves the session alone, unless another instant was written since. */
export async function clearDestroyAfter(db: Queries, id: string, written: Date): Promise<void> {
  await db
    .updateTable("sessions")
    .set({ destroy_after: null })
    .where("id", "=", id)
    .where("destroy_after", "=", written)
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

/** Takes over sessions whose provisioning nobody holds: their process died. */
export async function claimOrphanedProvisions(db: Queries, leaseMs: number): Promise<SessionRow[]> {
  const rows = await db
    .updateTable("sessions")
    .set({ provision_claimed_until: after(leaseMs) })
    .where("id", "in", (eb) =>
      eb
        .selectFrom("sessions")
        .select("id")
        .where("state", "=", "creating")
        .where((or) =>
          or.or([
            or("provision_claimed_until", "is", null),
            or("provision_claimed_until", "<", sql<Date>`now()`),
          ]),
        )
        .limit(50)
        .forUpdate()
        .skipLocked(),
    )
    .returningAll()
    .execute();
  return rows as SessionRow[];
}

/** Sessions that are being made from the snapshot. */
export async function listUnborn(db: Queries, snapshotId: string): Promise<SessionRow[]> {
  const rows = await db
    .selectFrom("sessions")
    .selectAll()
    .where("origin_snapshot_id", "=", snapshotId)
    .where("state", "=", FIRST_STATE)
    .execute();
  return rows as SessionRow[];
}

/** Whether a session is being started from the snapshot. */
export async function isOriginInUse(db: Queries, snapshotId: string): Promise<boolean> {
  const row = await db
    .selectFrom("sessions")
    .select("id")
    .where("origin_snapshot_id", "=", snapshotId)
    .where("state", "=", FIRST_STATE)
    .executeTakeFirst();
  return row !== undefined;
}

export async function listLiveMachines(db: Queries): Promise<SessionRow[]> {
  return (await db.selectFrom("sessions").selectAll().where("state", "=", "live").execute()) as SessionRow[];
}

export async function findSessionsById(db: Queries, ids: string[]): Promise<SessionRow[]> {
  if (ids.length === 0) return [];
  return (await db.selectFrom("sessions").selectAll().where("id", "in", ids).execute()) as SessionRow[];
}

/** Sessions whose machine may still exist although they hold none any more. */
export async function listUnreleased(db: Queries): Promise<SessionRow[]> {
  const rows = await db
    .selectFrom("sessions")
    .selectAll()
    .where("machine_released_at", "is", null)
    .where("state", "in", ["failed", "destroyed"])
    .limit(100)
    .execute();
  return rows as SessionRow[];
}

export async function listDueForDestroy(db: Queries): Promise<SessionRow[]> {
  const rows = await db
    .selectFrom("sessions")
    .selectAll()
    .where("destroy_after", "<", sql<Date>`now()`)
    .where("state", "<>", "destroyed")
    .limit(100)
    .execute();
  return rows as SessionRow[];
}

export async function listOldFailures(db: Queries): Promise<SessionRow[]> {
  const rows = await db
    .selectFrom("sessions")
    .selectAll()
    .where("state", "=", "failed")
    .where("state_changed_at", "<", before(LIMITS.failedRetentionMs))
    .limit(100)
    .execute();
  return rows as SessionRow[];
}

export async function deleteOldHistory(db: Queries): Promise<void> {
  await db
    .deleteFrom("sessions")
    .where("state", "=", "destroyed")
    .where("machine_released_at", "is not", null)
    .where("ended_at", "<", before(LIMITS.historyRetentionMs))
    .execute();
}

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

/** Which of these snapshots sessions need, or operations on them are about to need. */
export async function findSnapshotsInUse(db: Queries, ids: string[]): Promise<string[]> {
  const found = await sql<{ id: string }>`
    select snapshot_id as id from sessions where snapshot_id = any(${ids}) and state <> 'destroyed'
    union select origin_snapshot_id from sessions where origin_snapshot_id = any(${ids}) and state = 'creating'
    union select op_input ->> 'snapshot_id' from sessions
      where op is not null and state <> 'destroyed' and op_input ->> 'snapshot_id' = any(${ids})`.execute(db);
  return found.rows.map(({ id }) => id);
}

function after(ms: number) {
  return sql<Date>`now() + make_interval(secs => ${ms / 1000})`;
}

function before(ms: number) {
  return sql<Date>`service_now() - make_interval(secs => ${ms / 1000})`;
}

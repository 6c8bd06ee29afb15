/** SQL that reads sessions. Each folder writes the columns that it owns. */
import { LIMITS, type SessionState } from "@vivarium/contract/api";
import { type Selectable, sql } from "kysely";
import type { Scope } from "../access/principal.ts";
import type { Queries } from "../db/pool.ts";
import type { SessionTable } from "../db/tables.ts";
import type { OperationInput, OperationKind } from "./operation-kinds.ts";
import { ACTIVE_STATES, FIRST_STATE, WAKES_FROM } from "./state.ts";

export type SessionRow = Omit<Selectable<SessionTable>, "state" | "op" | "op_input"> & {
  state: SessionState;
  op: OperationKind | null;
  op_input: OperationInput | null;
};

/** Names are unique within a project. */
export async function isNameTaken(
  db: Queries,
  orgId: string,
  projectId: string | null,
  name: string,
): Promise<boolean> {
  const row = await db
    .selectFrom("sessions")
    .select("id")
    .where("org_id", "=", orgId)
    .where(sql`coalesce(project_id, '')`, "=", projectId ?? "")
    .where("name", "=", name)
    .where("state", "<>", "destroyed")
    .executeTakeFirst();
  return row !== undefined;
}

/** Number of sessions that count under the ceilings of an organisation and of one key. */
export async function countActiveSessions(
  db: Queries,
  { orgId, keyId }: { orgId: string; keyId: string },
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
        // A session that is waking up already counts.
        eb.and([eb("state", "=", WAKES_FROM), eb("op", "in", ["wake", "restore"])]),
      ]),
    )
    .executeTakeFirstOrThrow();
}

export async function countPausedSessions(db: Queries, orgId: string): Promise<number> {
  const { count } = await db
    .selectFrom("sessions")
    .select(sql<number>`count(*)::int`.as("count"))
    .where("org_id", "=", orgId)
    .where("state", "in", ["paused", "lifetime_expired"])
    .executeTakeFirstOrThrow();
  return count;
}

/** Counts the sessions of all organisations, without destroyed ones. */
export async function countByState(db: Queries): Promise<Map<SessionState, number>> {
  const rows = await db
    .selectFrom("sessions")
    .select(["state", sql<number>`count(*)::int`.as("count")])
    .where("state", "<>", "destroyed")
    .groupBy("state")
    .execute();
  return new Map(rows.map(({ state, count }) => [state as SessionState, count]));
}

/** The caller's session, even if it has ended. */
export async function findAnySession(db: Queries, scope: Scope, id: string): Promise<SessionRow | undefined> {
  let query = db.selectFrom("sessions").selectAll().where("id", "=", id).where("org_id", "=", scope.orgId);
  if (scope.projectId) query = query.where("project_id", "=", scope.projectId);
  return (await query.executeTakeFirst()) as SessionRow | undefined;
}

/** Without a scope: for background work, and for code that has checked access already. */
export async function findSessionById(db: Queries, id: string): Promise<SessionRow | undefined> {
  return (await db.selectFrom("sessions").selectAll().where("id", "=", id).executeTakeFirst()) as
    | SessionRow
    | undefined;
}

/** Sessions in creation from the snapshot. */
export async function listCreatingFrom(db: Queries, snapshotId: string): Promise<SessionRow[]> {
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

/** Ended sessions whose machine may still exist. */
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

/** Those of the snapshots that a session, or an operation in its row, refers to. */
export async function findSnapshotsInUse(db: Queries, ids: string[]): Promise<string[]> {
  const found = await sql<{ id: string }>`
    select snapshot_id as id from sessions where snapshot_id = any(${ids}) and state <> 'destroyed'
    union select origin_snapshot_id from sessions where origin_snapshot_id = any(${ids}) and state = 'creating'
    union select op_input ->> 'snapshot_id' from sessions
      where op is not null and state <> 'destroyed' and op_input ->> 'snapshot_id' = any(${ids})`.execute(db);
  return found.rows.map(({ id }) => id);
}

function before(ms: number) {
  return sql<Date>`service_now() - make_interval(secs => ${ms / 1000})`;
}

/** SQL that reads sessions, and deletes old history. Each folder writes the columns that it owns. */
import { LIMITS, type SessionState } from "@vivarium/contract/api";
import { type Selectable, sql } from "kysely";
import type { Scope } from "../access/principal.ts";
import { isInScope } from "../access/store.ts";
import type { Queries } from "../db/pool.ts";
import type { SessionTable } from "../db/tables.ts";
import type { Cursor } from "../http/cursor.ts";
import type { OperationInput, OperationKind } from "./operation-kinds.ts";
import { ACTIVE_STATES, FIRST_STATE, WAKES_FROM } from "./state.ts";

export type SessionRow = Omit<Selectable<SessionTable>, "state" | "op" | "op_input"> & {
  state: SessionState;
  op: OperationKind | null;
  op_input: OperationInput | null;
};

/** Selects whole rows of sessions; the caller adds the condition. */
export function findSessions(db: Queries) {
  return db.selectFrom("sessions").selectAll().$castTo<SessionRow>();
}

/** Whether a session of the project that is not destroyed has this name. */
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

/** States of sessions that have not ended. */
const UNFINISHED = ["creating", "live", "paused", "node_lost"];

export async function hasUnfinishedSessions(db: Queries, projectId: string): Promise<boolean> {
  const row = await db
    .selectFrom("sessions")
    .select("id")
    .where("project_id", "=", projectId)
    .where("state", "in", UNFINISHED)
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
  return await findSessions(db).where("id", "=", id).where(isInScope(scope)).executeTakeFirst();
}

/** Without a scope: for background work, and for code that has checked access already. */
export async function findSessionById(db: Queries, id: string): Promise<SessionRow | undefined> {
  return await findSessions(db).where("id", "=", id).executeTakeFirst();
}

/** Whether a session is being started from what the node made of an image. */
export async function isCreatedOn(db: Queries, baseline: string): Promise<boolean> {
  const row = await db
    .selectFrom("sessions")
    .select("id")
    .where("state", "=", FIRST_STATE)
    .where("baseline", "=", baseline)
    .limit(1)
    .executeTakeFirst();
  return row !== undefined;
}

/** Sessions that are being created from the snapshot. */
export async function listCreatingFrom(db: Queries, snapshotId: string): Promise<SessionRow[]> {
  return await findSessions(db)
    .where("origin_snapshot_id", "=", snapshotId)
    .where("state", "=", FIRST_STATE)
    .execute();
}

/** Sessions that are not destroyed, newest first. */
export async function listCurrent(
  db: Queries,
  scope: Scope,
  filter: { states?: string[]; externalId?: string; limit: number },
): Promise<SessionRow[]> {
  let query = findSessions(db)
    .where(isInScope(scope))
    .where("state", "<>", "destroyed")
    .orderBy("created_at", "desc")
    .orderBy("id", "desc")
    .limit(filter.limit);
  if (filter.states) query = query.where("state", "in", filter.states);
  if (filter.externalId !== undefined) query = query.where("external_id", "=", filter.externalId);
  return await query.execute();
}

/** Destroyed sessions; the one that ended last comes first. */
export async function listEnded(
  db: Queries,
  scope: Scope,
  { after, limit }: { after?: Cursor; limit: number },
): Promise<SessionRow[]> {
  let query = findSessions(db)
    .where(isInScope(scope))
    .where("state", "=", "destroyed")
    .orderBy("ended_at", "desc")
    .orderBy("id", "desc")
    .limit(limit);
  if (after) query = query.where(sql<boolean>`(ended_at, id) < (${after.at}, ${after.id})`);
  return await query.execute();
}

export async function listLiveMachines(db: Queries): Promise<SessionRow[]> {
  return await findSessions(db).where("state", "=", "live").execute();
}

/** Sessions of callers that have a machine, or are getting one; those of stateless runs end with their call. */
export async function listActiveOfCallers(db: Queries): Promise<SessionRow[]> {
  return await findSessions(db)
    .where("state", "in", [...ACTIVE_STATES])
    .where("origin", "=", "api")
    .execute();
}

export async function findSessionsById(db: Queries, ids: string[]): Promise<SessionRow[]> {
  return ids.length === 0 ? [] : await findSessions(db).where("id", "in", ids).execute();
}

/** Destroyed and failed sessions whose machine may still exist. */
export async function listUnreleased(db: Queries): Promise<SessionRow[]> {
  return await findSessions(db)
    .where("machine_released_at", "is", null)
    .where("state", "in", ["failed", "destroyed"])
    .limit(100)
    .execute();
}

export async function listOldFailures(db: Queries): Promise<SessionRow[]> {
  return await findSessions(db)
    .where("state", "=", "failed")
    .where("state_changed_at", "<", before(LIMITS.failedRetentionMs))
    .limit(100)
    .execute();
}

export async function deleteOldHistory(db: Queries): Promise<void> {
  await db
    .deleteFrom("sessions")
    .where("state", "=", "destroyed")
    .where("machine_released_at", "is not", null)
    .where("ended_at", "<", before(LIMITS.historyRetentionMs))
    .execute();
}

/** Keeps only the snapshots that a session, or an operation in its row, refers to. */
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

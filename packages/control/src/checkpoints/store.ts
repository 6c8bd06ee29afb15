/** SQL of checkpoints. */
import { type Insertable, type Selectable, sql } from "kysely";
import type { Scope } from "../access/principal.ts";
import { isInScope } from "../access/store.ts";
import type { Queries } from "../db/pool.ts";
import { isUniqueViolation } from "../db/postgres-errors.ts";
import type { CheckpointTable } from "../db/tables.ts";
import type { Cursor } from "../http/cursor.ts";

export type CheckpointRow = Selectable<CheckpointTable>;

export async function insertCheckpoint(
  db: Queries,
  checkpoint: Insertable<CheckpointTable>,
): Promise<CheckpointRow | "name_taken"> {
  try {
    return await db.insertInto("checkpoints").values(checkpoint).returningAll().executeTakeFirstOrThrow();
  } catch (error) {
    if (isUniqueViolation(error, "checkpoints_name")) return "name_taken";
    throw error;
  }
}

/** With `lock`, the row cannot be deleted before the transaction ends. */
export async function findCheckpoint(
  db: Queries,
  scope: Scope,
  id: string,
  lock = false,
): Promise<CheckpointRow | undefined> {
  const query = db.selectFrom("checkpoints").selectAll().where("id", "=", id).where(isInScope(scope));
  return await (lock ? query.forShare() : query).executeTakeFirst();
}

/** Without a scope, for background work. */
export async function findCheckpointById(db: Queries, id: string): Promise<CheckpointRow | undefined> {
  return await db.selectFrom("checkpoints").selectAll().where("id", "=", id).executeTakeFirst();
}

export async function findCheckpointByName(
  db: Queries,
  sessionId: string,
  name: string,
): Promise<CheckpointRow | undefined> {
  return await db
    .selectFrom("checkpoints")
    .selectAll()
    .where("session_id", "=", sessionId)
    .where("name", "=", name)
    .executeTakeFirst();
}

export async function findNewestCheckpoint(
  db: Queries,
  sessionId: string,
): Promise<CheckpointRow | undefined> {
  return await db
    .selectFrom("checkpoints")
    .selectAll()
    .where("session_id", "=", sessionId)
    .orderBy("created_at", "desc")
    .orderBy("id", "desc")
    .limit(1)
    .executeTakeFirst();
}

export async function countCheckpoints(db: Queries, orgId: string): Promise<number> {
  const { count } = await db
    .selectFrom("checkpoints")
    .select(sql<number>`count(*)::int`.as("count"))
    .where("org_id", "=", orgId)
    .executeTakeFirstOrThrow();
  return count;
}

/** Checkpoints in scope, newest first. */
export async function listCheckpointRows(
  db: Queries,
  scope: Scope,
  { sessionId, after, limit }: { sessionId?: string; after?: Cursor; limit?: number },
): Promise<CheckpointRow[]> {
  let query = db
    .selectFrom("checkpoints")
    .selectAll()
    .where(isInScope(scope))
    .orderBy("created_at", "desc")
    .orderBy("id", "desc");
  if (sessionId !== undefined) query = query.where("session_id", "=", sessionId);
  if (after) query = query.where(sql<boolean>`(created_at, id) < (${after.at}, ${after.id})`);
  if (limit !== undefined) query = query.limit(limit);
  return await query.execute();
}

/** Deletes and returns the checkpoint. Undefined if the caller has no such checkpoint. */
export async function removeCheckpoint(
  db: Queries,
  scope: Scope,
  id: string,
): Promise<CheckpointRow | undefined> {
  return await db
    .deleteFrom("checkpoints")
    .where("id", "=", id)
    .where(isInScope(scope))
    .returningAll()
    .executeTakeFirst();
}

/** Keeps only the ids that are checkpoints. */
export async function keepOnlyCheckpoints(db: Queries, ids: string[]): Promise<string[]> {
  if (ids.length === 0) return [];
  const rows = await db.selectFrom("checkpoints").select("id").where("id", "in", ids).execute();
  return rows.map(({ id }) => id);
}

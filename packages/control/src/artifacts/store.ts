/** SQL of artifacts. */
import { type ARTIFACT_STATUSES, LIMITS } from "@vivarium/contract/api";
import { type Selectable, sql } from "kysely";
import type { Scope } from "../access/principal.ts";
import { isInScope } from "../access/store.ts";
import { firstExpiry, IS_TEARDOWN_OVER } from "../artifact-records/columns.ts";
import type { Queries } from "../db/pool.ts";
import type { ArtifactFileTable, ArtifactTable } from "../db/tables.ts";

export type ArtifactRow = Omit<Selectable<ArtifactTable>, "state"> & {
  state: (typeof ARTIFACT_STATUSES)[number];
};
export type ArtifactFileRow = Selectable<ArtifactFileTable>;

const NOT_EXPIRED = sql<boolean>`expires_at > service_now()`;
const IS_OVERDUE = sql<boolean>`case cause when 'teardown' then ${IS_TEARDOWN_OVER}
  else captured_at <= service_now() - make_interval(secs => ${LIMITS.artifactCaptureMs / 1000}) end`;

const artifacts = (db: Queries) => db.selectFrom("artifacts").selectAll().$castTo<ArtifactRow>();

export async function insertArtifact(
  db: Queries,
  row: Pick<ArtifactRow, "id" | "org_id" | "project_id" | "session_id" | "paths">,
): Promise<ArtifactRow> {
  return await db
    .insertInto("artifacts")
    .values({ ...row, cause: "request", expires_at: firstExpiry })
    .returningAll()
    .$castTo<ArtifactRow>()
    .executeTakeFirstOrThrow();
}

export async function countPending(db: Queries, orgId: string): Promise<number> {
  const { count } = await db
    .selectFrom("artifacts")
    .select(sql<number>`count(*)::int`.as("count"))
    .where("org_id", "=", orgId)
    .where("state", "=", "pending")
    .executeTakeFirstOrThrow();
  return count;
}

/** The caller's artifact, unless it has expired. With `lock` it cannot change before the transaction ends. */
export async function findArtifact(
  db: Queries,
  scope: Scope,
  id: string,
  lock = false,
): Promise<ArtifactRow | undefined> {
  const query = artifacts(db).where("id", "=", id).where(isInScope(scope)).where(NOT_EXPIRED);
  return await (lock ? query.forUpdate() : query).executeTakeFirst();
}

/** Without a scope: for background work, and for signed links. */
export async function findArtifactById(db: Queries, id: string): Promise<ArtifactRow | undefined> {
  return await artifacts(db).where("id", "=", id).where(NOT_EXPIRED).executeTakeFirst();
}

export async function listOfSession(db: Queries, scope: Scope, sessionId: string): Promise<ArtifactRow[]> {
  return await artifacts(db)
    .where("session_id", "=", sessionId)
    .where(isInScope(scope))
    .where(NOT_EXPIRED)
    .orderBy("seq", "desc")
    .execute();
}

/** Files of these artifacts, in the order of their numbers, without the names of their pieces. */
export async function listFiles(
  db: Queries,
  ids: readonly string[],
): Promise<Omit<ArtifactFileRow, "pieces">[]> {
  if (ids.length === 0) return [];
  return await db
    .selectFrom("artifact_files")
    .select(["artifact_id", "position", "path", "size_bytes"])
    .where("artifact_id", "in", ids)
    .orderBy("artifact_id")
    .orderBy("position")
    .execute();
}

export async function findFile(
  db: Queries,
  artifactId: string,
  position: number,
): Promise<ArtifactFileRow | undefined> {
  return await db
    .selectFrom("artifact_files")
    .selectAll()
    .where("artifact_id", "=", artifactId)
    .where("position", "=", position)
    .executeTakeFirst();
}

/** Artifacts that have files, from the one after `seq` on: for work that goes through all of them. */
export async function listWithFiles(db: Queries, afterSeq: number): Promise<ArtifactRow[]> {
  return await artifacts(db)
    .where("state", "<>", "failed")
    .where("seq", ">", afterSeq)
    .orderBy("seq")
    .limit(100)
    .execute();
}

export async function listPieces(
  db: Queries,
  artifactId: string,
): Promise<Pick<ArtifactFileRow, "path" | "pieces" | "size_bytes">[]> {
  return await db
    .selectFrom("artifact_files")
    .select(["path", "pieces", "size_bytes"])
    .where("artifact_id", "=", artifactId)
    .orderBy("position")
    .execute();
}

/** Whether the row is there, be it expired. */
export async function isThere(db: Queries, id: string): Promise<boolean> {
  const row = await db.selectFrom("artifacts").select("id").where("id", "=", id).executeTakeFirst();
  return row !== undefined;
}

/** Counts one more beginning of the capture. Undefined if it is over. */
export async function beginAttempt(db: Queries, id: string): Promise<ArtifactRow | undefined> {
  return await db
    .updateTable("artifacts")
    .set({ attempts: sql<number>`attempts + 1` })
    .where("id", "=", id)
    .where("state", "=", "pending")
    .returningAll()
    .$castTo<ArtifactRow>()
    .executeTakeFirst();
}

/** The first key stays: objects may be sealed with it already. */
export async function saveKey(
  db: Queries,
  id: string,
  { kek_id, data_key }: { kek_id: string; data_key: Buffer },
): Promise<void> {
  await db
    .updateTable("artifacts")
    .set({ kek_id, data_key })
    .where("id", "=", id)
    .where("data_key", "is", null)
    .execute();
}

export async function insertFile(db: Queries, file: ArtifactFileRow): Promise<void> {
  await db
    .insertInto("artifact_files")
    .values(file)
    .onConflict((on) => on.doNothing())
    .execute();
}

/** Settles a pending capture. Undefined if it was settled or deleted meanwhile. */
export async function settle(
  db: Queries,
  id: string,
  end: { outcome: "ready" } | { outcome: "failed"; error: string },
): Promise<ArtifactRow | undefined> {
  return await db
    .updateTable("artifacts")
    .set({ state: end.outcome, error: end.outcome === "failed" ? end.error : null })
    .where("id", "=", id)
    .where("state", "=", "pending")
    .returningAll()
    .$castTo<ArtifactRow>()
    .executeTakeFirst();
}

export async function deleteFiles(db: Queries, artifactId: string): Promise<void> {
  await db.deleteFrom("artifact_files").where("artifact_id", "=", artifactId).execute();
}

export async function saveExpiry(db: Queries, id: string, ttlDays: number): Promise<ArtifactRow> {
  const cap = sql`captured_at + make_interval(secs => ${LIMITS.artifactRetentionMaxMs / 1000})`;
  const wanted = sql`service_now() + make_interval(days => ${ttlDays})`;
  return await db
    .updateTable("artifacts")
    .set({ expires_at: sql<Date>`greatest(expires_at, least(${wanted}, ${cap}))` })
    .where("id", "=", id)
    .returningAll()
    .$castTo<ArtifactRow>()
    .executeTakeFirstOrThrow();
}

/** Deletes the row with its key and files, so that nobody can open its objects any more. */
export async function removeArtifact(db: Queries, id: string): Promise<void> {
  await db.deleteFrom("artifacts").where("id", "=", id).execute();
}

/** Captures that are to be done, without those whose time is over. */
export async function listPending(db: Queries): Promise<ArtifactRow[]> {
  return await artifacts(db)
    .where("state", "=", "pending")
    .where(sql<boolean>`not (${IS_OVERDUE})`)
    .orderBy("captured_at")
    .limit(500)
    .execute();
}

export async function listOverdue(db: Queries): Promise<ArtifactRow[]> {
  return await artifacts(db).where("state", "=", "pending").where(IS_OVERDUE).limit(100).execute();
}

/** Locked, and not those that another process handles. */
export async function lockExpired(db: Queries): Promise<ArtifactRow[]> {
  return await artifacts(db)
    .where(sql<boolean>`not (${NOT_EXPIRED})`)
    .limit(100)
    .forUpdate()
    .skipLocked()
    .execute();
}

/** Keeps only the ids of artifacts whose objects are in use: failed ones need none. */
export async function keepOnlyArtifacts(db: Queries, ids: readonly string[]): Promise<Set<string>> {
  if (ids.length === 0) return new Set();
  const rows = await db
    .selectFrom("artifacts")
    .select("id")
    .where("id", "in", ids)
    .where("state", "<>", "failed")
    .execute();
  return new Set(rows.map(({ id }) => id));
}

/** SQL of the work on archives. */
import { LIMITS } from "@vivarium/contract/api";
import { sql } from "kysely";
import { type Archive, findArchives, type SpaceRow } from "../archive-records/store.ts";
import type { Queries } from "../db/pool.ts";

const FAILED = "failed";

/**
 * Whether something still has the state of the archive: a session that is paused in it, or is being; a checkpoint; a template.
 * The last archive of a session's pauses that is complete stays until the next one is: it is what a lost node leaves. One of the
 * warm tier is on the node's own disk.
 */
const IS_OWNED = sql<boolean>`case archives.kind
  when 'pause' then exists (select from sessions
    where sessions.id = archives.session_id and sessions.state <> 'destroyed'
      and (sessions.snapshot_id = archives.snapshot_id
        or sessions.op_input ->> 'snapshot_id' = archives.snapshot_id
        or (archives.state = 'complete'
          and not exists (select from archive_spaces as space where space.id = archives.space_id and space.is_local)
          and not exists (select from archives as newer
          where newer.session_id = archives.session_id and newer.kind = 'pause' and newer.state = 'complete'
            and newer.uploaded_at > archives.uploaded_at))))
  when 'checkpoint' then exists (select from checkpoints where checkpoints.id = archives.snapshot_id)
  when 'template' then exists (select from templates where templates.id = archives.snapshot_id)
  else archives.created_at > now() - make_interval(secs => ${LIMITS.archiveGraceMs / 1000}) end`;
const IS_BASE = sql<boolean>`exists (select from archives as other where other.base_archive = archives.id)`;

/** Whether the archive is of the tier that the service packs: the object store, or without `hasArchives` the warm tier. */
const isOfTier = (hasArchives: boolean) =>
  sql<boolean>`exists (select from archive_spaces as space where space.id = archives.space_id and space.is_local = ${!hasArchives})`;

/** Archives that can be packed now: their base is complete, and no sweep removes objects of their space. */
export async function listPackable(db: Queries, hasArchives: boolean): Promise<string[]> {
  const rows = await db
    .selectFrom("archives")
    .innerJoin("archive_spaces", "archive_spaces.id", "archives.space_id")
    .leftJoin("archives as base", "base.id", "archives.base_archive")
    .select("archives.id")
    .where("archives.state", "=", "pending")
    .where((eb) => eb.or([eb("archives.base_archive", "is", null), eb("base.state", "=", "complete")]))
    .where(sql<boolean>`coalesce(swept_until < now(), true)`)
    .where(isOfTier(hasArchives))
    .orderBy("archives.created_at")
    .limit(500)
    .execute();
  return rows.map(({ id }) => id);
}

/**
 * Counts one more beginning. Undefined if the archive is not to be packed, or not now. Race: the space is locked before the row
 * is read, and a sweep locks it before it looks for rows, so that one of the two sees the other.
 */
export async function beginAttempt(tx: Queries, id: string): Promise<Archive | undefined> {
  const space = await tx
    .selectFrom("archive_spaces")
    .select(["id", sql<boolean>`coalesce(swept_until > now(), false)`.as("is_swept")])
    .where("id", "in", (eb) => eb.selectFrom("archives").select("space_id").where("id", "=", id))
    .forUpdate()
    .executeTakeFirst();
  if (!space || space.is_swept) return undefined;
  const begun = await tx
    .updateTable("archives")
    .set({ attempt: sql<number>`attempt + 1`, tries: sql<number>`tries + 1` })
    .where("id", "=", id)
    .where("state", "=", "pending")
    .where(sql<boolean>`(base_archive is null or exists (select from archives as base
      where base.id = archives.base_archive and base.state = 'complete'))`)
    .returning("id")
    .executeTakeFirst();
  return begun && (await findArchives(tx).where("id", "=", id).executeTakeFirst());
}

interface PackedRow {
  contents: Buffer;
  chunks: Buffer;
  differing_bytes: number;
  stored_bytes: number;
}

/** Undefined if the archive is not this attempt's any more, or if nothing has its state. */
export async function complete(
  db: Queries,
  { id, attempt }: Pick<Archive, "id" | "attempt">,
  packed: PackedRow,
): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable("archives")
    .set({
      ...packed,
      state: "complete",
      error: null,
      failed_at: null,
      uploaded_at: sql<Date>`now()`,
      tries: 0,
    })
    .where("id", "=", id)
    .where("state", "=", "pending")
    .where("attempt", "=", attempt)
    .where(sql<boolean>`(${IS_OWNED} or ${IS_BASE})`)
    .executeTakeFirst();
  return numUpdatedRows > 0n;
}

/** False if the archive is not this attempt's any more. */
export async function fail(
  db: Queries,
  { id, attempt }: Pick<Archive, "id" | "attempt">,
  error: string,
): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable("archives")
    .set({ state: FAILED, error, failed_at: sql<Date>`now()` })
    .where("id", "=", id)
    .where("state", "=", "pending")
    .where("attempt", "=", attempt)
    .executeTakeFirst();
  return numUpdatedRows > 0n;
}

/** Makes a failed archive pending again, with those that it differs from. The key is the same. */
export async function retry(db: Queries, id: string): Promise<void> {
  await sql`
    with recursive wanted (id, base_archive) as (
      select id, base_archive from archives where id = ${id}
      union select archives.id, archives.base_archive from archives join wanted on archives.id = wanted.base_archive)
    update archives set state = 'pending', tries = 0, error = null, failed_at = null
      where id in (select id from wanted) and state = 'failed'`.execute(db);
}

/** Failed archives whose time for another attempt has come. */
export async function listRetriable(db: Queries, hasArchives: boolean): Promise<string[]> {
  const rows = await db
    .selectFrom("archives")
    .select("id")
    .where("state", "=", "failed")
    .where(isOfTier(hasArchives))
    .where(sql<boolean>`failed_at < now() - make_interval(secs => ${LIMITS.archiveRetryMs / 1000})`)
    .orderBy("failed_at")
    .limit(500)
    .execute();
  return rows.map(({ id }) => id);
}

/** Pending archives that differ from one that has failed. */
export async function listStranded(db: Queries, hasArchives: boolean): Promise<Archive[]> {
  return await findArchives(db)
    .where("state", "=", "pending")
    .where(isOfTier(hasArchives))
    .where("base_archive", "in", (eb) =>
      eb.selectFrom("archives as base").select("base.id").where("base.state", "=", "failed"),
    )
    .limit(100)
    .execute();
}

/** Deletes archives that nothing has or needs, and so destroys their keys. Returns the spaces that they were in. */
export async function deleteUnowned(db: Queries): Promise<Pick<SpaceRow, "id" | "org_id">[]> {
  const deleted = await db
    .deleteFrom("archives")
    .where(sql<boolean>`not (${IS_OWNED})`)
    .where(sql<boolean>`not (${IS_BASE})`)
    .returning(["space_id as id", "org_id"])
    .execute();
  return [...new Map(deleted.map((space) => [space.id, space])).values()];
}

/** Deletes spaces without archives, with their secrets, and returns them. */
export async function deleteEmptySpaces(db: Queries): Promise<Pick<SpaceRow, "id" | "org_id">[]> {
  return await db.transaction().execute(async (tx) => {
    // Race: a row that is being added has locked its space, and is there once the lock is free.
    const empty = await tx
      .selectFrom("archive_spaces")
      .select("id")
      .where(sql<boolean>`not exists (select from archives where space_id = archive_spaces.id)`)
      .limit(100)
      .forUpdate()
      .skipLocked()
      .execute();
    if (empty.length === 0) return [];
    return await tx
      .deleteFrom("archive_spaces")
      .where(
        "id",
        "in",
        empty.map(({ id }) => id),
      )
      .where(sql<boolean>`not exists (select from archives where space_id = archive_spaces.id)`)
      .returning(["id", "org_id"])
      .execute();
  });
}

/**
 * Takes the lease of a space for a sweep, or renews the one that has lasted until `held`. Returns until when it lasts. Undefined
 * if something is to be packed into the space, if another sweep has it, or if it is gone.
 */
export async function leaseSpace(
  tx: Queries,
  id: string,
  ms: number,
  held?: Date,
): Promise<Date | undefined> {
  const space = await tx
    .selectFrom("archive_spaces")
    .select(["swept_until", sql<boolean>`coalesce(swept_until > now(), false)`.as("is_swept")])
    .where("id", "=", id)
    .forUpdate()
    .executeTakeFirst();
  if (!space) return undefined;
  if (held ? space.swept_until?.getTime() !== held.getTime() : space.is_swept) return undefined;
  const pending = await tx
    .selectFrom("archives")
    .select("id")
    .where("space_id", "=", id)
    .where("state", "=", "pending")
    .limit(1)
    .executeTakeFirst();
  if (pending) return undefined;
  const { swept_until } = await tx
    .updateTable("archive_spaces")
    .set({ swept_until: sql<Date>`clock_timestamp() + make_interval(secs => ${ms / 1000})` })
    .where("id", "=", id)
    .returning("swept_until")
    .executeTakeFirstOrThrow();
  return swept_until ?? undefined;
}

export async function releaseSpace(db: Queries, id: string, held: Date): Promise<void> {
  await db
    .updateTable("archive_spaces")
    .set({ swept_until: null })
    .where("id", "=", id)
    .where("swept_until", "=", held)
    .execute();
}

export async function listSpaces(
  db: Queries,
  after: string,
): Promise<Pick<SpaceRow, "id" | "org_id" | "is_local">[]> {
  return await db
    .selectFrom("archive_spaces")
    .select(["id", "org_id", "is_local"])
    .where("id", ">", after)
    .orderBy("id")
    .limit(100)
    .execute();
}

/** Keeps only the ids of spaces. */
export async function keepOnlySpaces(db: Queries, ids: readonly string[]): Promise<Set<string>> {
  if (ids.length === 0) return new Set();
  const rows = await db.selectFrom("archive_spaces").select("id").where("id", "in", ids).execute();
  return new Set(rows.map(({ id }) => id));
}

/** Those of the names that an archive of the space has. */
export async function keepOnlyNamed(
  db: Queries,
  spaceId: string,
  names: readonly string[],
): Promise<Set<string>> {
  if (names.length === 0) return new Set();
  const wanted = names.map((name) => Buffer.from(name, "hex"));
  const { rows } = await sql<{ name: string }>`
    select distinct encode(name, 'hex') as name from (
      select contents as name from archives where space_id = ${spaceId} and contents is not null
      union all
      select substring(chunks from at + 1 for 32) from archives
        cross join generate_series(0, length(chunks) - 1, 32) as at
        where space_id = ${spaceId} and chunks is not null) as named
    where name = any(${wanted}::bytea[])`.execute(db);
  return new Set(rows.map(({ name }) => name));
}

/** The session's row does not change before the transaction ends. */
export async function lockSession(tx: Queries, id: string): Promise<void> {
  await tx.selectFrom("sessions").select("id").where("id", "=", id).forUpdate().execute();
}

/**
 * Snapshots among these that can leave the node: their archive is complete in the tier that the service has, and no operation,
 * create or packing of another state uses them.
 */
export async function listFreeable(
  db: Queries,
  snapshotIds: readonly string[],
  hasArchives: boolean,
): Promise<Archive[]> {
  const { rows } = await sql<{ id: string }>`
    select id from archives
      where snapshot_id = any(${snapshotIds}) and state = 'complete' and ${isOfTier(hasArchives)}
        and not exists (select from archives as other where other.base_archive = archives.id and other.state = 'pending')
        and not exists (select from sessions where state <> 'destroyed' and op is not null
          and (sessions.snapshot_id = archives.snapshot_id or op_input ->> 'checkpoint_id' = archives.snapshot_id
            or op_input ->> 'snapshot_id' = archives.snapshot_id))
        and not exists (select from sessions
          where state = 'creating' and origin_snapshot_id = archives.snapshot_id)`.execute(db);
  if (rows.length === 0) return [];
  return await findArchives(db)
    .where(
      "id",
      "in",
      rows.map(({ id }) => id),
    )
    .execute();
}

/** Writes which states no node has, by a list of all that are there. Baselines are not listed. */
export async function saveWhereStatesAre(db: Queries, listed: readonly string[]): Promise<void> {
  await sql`
    update archives set is_cold = not is_cold
      where state = 'complete' and kind <> 'baseline' and is_cold = (snapshot_id = any(${listed}))`.execute(
    db,
  );
}

/** Saved states among these snapshots that have an owner and no archive. */
export async function listUnarchived(
  db: Queries,
  snapshotIds: readonly string[],
): Promise<(Pick<Archive, "kind" | "snapshot_id"> & { session_id: string })[]> {
  const { rows } = await sql<Pick<Archive, "kind" | "snapshot_id"> & { session_id: string }>`
    select * from (
      select 'pause' as kind, snapshot_id, id as session_id from sessions where state = 'paused' and op is null
      union all
      select 'checkpoint', id, session_id from checkpoints
      union all
      select 'template', id, session_id from templates where session_id is not null) as states
    where snapshot_id = any(${snapshotIds})
      and not exists (select from archives where archives.snapshot_id = states.snapshot_id)
    limit 500`.execute(db);
  return rows;
}

/**
 * Deletes archives of the warm tier that a service with a bucket does not need: of states that are on the node, which the bucket is
 * to have, and of baselines that none differs from.
 */
export async function deleteOutgrown(db: Queries, listed: readonly string[]): Promise<void> {
  // States first: a baseline is needed as long as one of them differs from it.
  for (const isMeant of [sql<boolean>`snapshot_id = any(${listed})`, sql<boolean>`kind = 'baseline'`])
    await db
      .deleteFrom("archives")
      .where(isMeant)
      .where(isOfTier(false))
      .where(sql<boolean>`not ${IS_BASE}`)
      .execute();
}

export async function listComplete(db: Queries, after: string): Promise<Archive[]> {
  return await findArchives(db)
    .where("state", "=", "complete")
    .where("id", ">", after)
    .orderBy("id")
    .limit(100)
    .execute();
}

/** Archives of the warm tier that are not packed yet. */
export async function countUnpacked(db: Queries): Promise<number> {
  const { count } = await db
    .selectFrom("archives")
    .innerJoin("archive_spaces", "archive_spaces.id", "archives.space_id")
    .select(sql<number>`count(*)::int`.as("count"))
    .where("archives.state", "=", "pending")
    .where("archive_spaces.is_local", "=", true)
    .executeTakeFirstOrThrow();
  return count;
}

/** Bytes of all archives, before compression. */
export async function countArchivedBytes(db: Queries): Promise<number> {
  const { sum } = await db
    .selectFrom("archives")
    .select(sql<number>`coalesce(sum(differing_bytes), 0)::bigint`.as("sum"))
    .where("state", "=", "complete")
    .executeTakeFirstOrThrow();
  return sum;
}

/** Lets an archive that was found damaged be packed again, unless its state is in the object store alone. */
export async function packAgain(db: Queries, id: string): Promise<void> {
  await db
    .updateTable("archives")
    .set({ state: "pending", tries: 0, contents: null, chunks: null, uploaded_at: null })
    .where("id", "=", id)
    .where("state", "=", "complete")
    .where("is_cold", "=", false)
    .execute();
}

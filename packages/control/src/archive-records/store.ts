/** SQL of archives, for those that add, read and fetch them. */
import { type Insertable, type Selectable, sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import type { ArchiveSpaceTable, ArchiveTable } from "../db/tables.ts";

type ArchiveRow = Selectable<ArchiveTable>;
export type SpaceRow = Selectable<ArchiveSpaceTable>;

/** All columns but the names of chunks, of which there may be many thousands. */
const COLUMNS = [
  ...(["id", "org_id", "project_id", "space_id", "kind", "snapshot_id", "session_id"] as const),
  ...(["base_archive", "depth", "baseline_id", "state", "created_at", "attempt", "tries"] as const),
  ...(["failed_at", "error", "kek_id", "data_key", "contents"] as const),
  ...(["differing_bytes", "stored_bytes", "uploaded_at", "is_cold"] as const),
] as const;
export type Archive = Pick<ArchiveRow, (typeof COLUMNS)[number]>;

export const findArchives = (db: Queries) => db.selectFrom("archives").select(COLUMNS);

export async function findArchiveOf(db: Queries, snapshotId: string): Promise<Archive | undefined> {
  return await findArchives(db).where("snapshot_id", "=", snapshotId).executeTakeFirst();
}

export async function findArchive(db: Queries, id: string): Promise<Archive | undefined> {
  return await findArchives(db).where("id", "=", id).executeTakeFirst();
}

type Placed = Archive & Pick<SpaceRow, "is_local">;

export async function findPlaced(db: Queries, snapshotIds: readonly string[]): Promise<Placed[]> {
  if (snapshotIds.length === 0) return [];
  return await db
    .selectFrom("archives")
    .innerJoin("archive_spaces", "archive_spaces.id", "archives.space_id")
    .select(COLUMNS.map((name) => `archives.${name}` as const))
    .select("archive_spaces.is_local")
    .where("snapshot_id", "in", snapshotIds)
    .execute();
}

export async function findSpace(db: Queries, id: string): Promise<SpaceRow | undefined> {
  return await db.selectFrom("archive_spaces").selectAll().where("id", "=", id).executeTakeFirst();
}

/** The owner's space, which stays until the transaction ends; `wanted` if there is none. */
export async function takeSpace(tx: Queries, wanted: Insertable<ArchiveSpaceTable>): Promise<SpaceRow> {
  return await tx
    .insertInto("archive_spaces")
    .values(wanted)
    .onConflict((on) => on.column("owner").doUpdateSet({ owner: wanted.owner }))
    .returningAll()
    .executeTakeFirstOrThrow();
}

/** The snapshot's archive; `wanted` if there is none. */
export async function takeArchive(tx: Queries, wanted: Insertable<ArchiveTable>): Promise<Archive> {
  return await tx
    .insertInto("archives")
    .values(wanted)
    .onConflict((on) => on.column("snapshot_id").doUpdateSet({ snapshot_id: wanted.snapshot_id }))
    .returning(COLUMNS)
    .executeTakeFirstOrThrow();
}

export async function setBase(
  db: Queries,
  id: string,
  base: { base_archive: string | null; depth: number },
): Promise<void> {
  await db.updateTable("archives").set(base).where("id", "=", id).execute();
}

export async function saveIsCold(
  db: Queries,
  snapshotIds: readonly string[],
  isCold: boolean,
): Promise<void> {
  if (snapshotIds.length === 0) return;
  await db
    .updateTable("archives")
    .set({ is_cold: isCold })
    .where("snapshot_id", "in", snapshotIds)
    .where("is_cold", "<>", isCold)
    .where("state", "=", "complete")
    .execute();
}

/** Destroys the key of a snapshot's archive, unless other archives need it as their base. */
export async function deleteArchive(tx: Queries, snapshotId: string): Promise<void> {
  await sql`
    delete from archives where snapshot_id = ${snapshotId}
      and not exists (select from archives as other where other.base_archive = archives.id)`.execute(tx);
}

/** Keeps only the ids of baselines that have an archive: one of another host is listed as a snapshot. */
export async function keepOnlyBaselines(db: Queries, ids: string[]): Promise<string[]> {
  if (ids.length === 0) return [];
  const rows = await db
    .selectFrom("archives")
    .select("snapshot_id")
    .where("snapshot_id", "in", ids)
    .where("kind", "=", "baseline")
    .execute();
  return rows.map(({ snapshot_id: id }) => id);
}

/** Archives of all organisations, with the bytes of those that are complete. */
export async function countArchives(
  db: Queries,
): Promise<
  (Pick<Archive, "kind" | "state"> & { count: number; packed_bytes: number; sent_bytes: number })[]
> {
  return await db
    .selectFrom("archives")
    .select([
      "kind",
      "state",
      sql<number>`count(*)::int`.as("count"),
      sql<number>`coalesce(sum(differing_bytes), 0)::bigint`.as("packed_bytes"),
      sql<number>`coalesce(sum(stored_bytes), 0)::bigint`.as("sent_bytes"),
    ])
    .groupBy(["kind", "state"])
    .execute();
}

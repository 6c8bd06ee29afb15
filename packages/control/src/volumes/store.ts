/** SQL of volumes. A row is there before the node makes the volume, and until the node has none. */
import { type Insertable, type Selectable, sql } from "kysely";
import type { Scope } from "../access/principal.ts";
import { isInScope } from "../access/store.ts";
import type { Queries } from "../db/pool.ts";
import type { VolumeTable } from "../db/tables.ts";

export type VolumeRow = Selectable<VolumeTable>;

/** How long the node may take to make a volume. After that the process that asked for it counts as dead. */
const MADE_WITHIN = sql<Date>`now() - interval '1 minute'`;

export async function insertVolume(db: Queries, volume: Insertable<VolumeTable>): Promise<VolumeRow> {
  return await db.insertInto("volumes").values(volume).returningAll().executeTakeFirstOrThrow();
}

/** Undefined if the volume was given up meanwhile. */
export async function markReady(db: Queries, id: string): Promise<VolumeRow | undefined> {
  return await db
    .updateTable("volumes")
    .set({ state: "ready" })
    .where("id", "=", id)
    .where("state", "=", "making")
    .returningAll()
    .executeTakeFirst();
}

/** A volume that callers see. With `lock`, nobody changes the row before the transaction ends. */
export async function findVolume(
  db: Queries,
  scope: Scope,
  id: string,
  { lock = false } = {},
): Promise<VolumeRow | undefined> {
  const query = db
    .selectFrom("volumes")
    .selectAll()
    .where("id", "=", id)
    .where("state", "=", "ready")
    .where(isInScope(scope));
  return await (lock ? query.forUpdate() : query).executeTakeFirst();
}

export async function listVolumeRows(db: Queries, scope: Scope): Promise<VolumeRow[]> {
  return await db
    .selectFrom("volumes")
    .selectAll()
    .where("state", "=", "ready")
    .where(isInScope(scope))
    .orderBy("created_at", "desc")
    .orderBy("id", "desc")
    .execute();
}

/** The GB in scope that count under the quota of the organisation. */
export async function countGb(db: Queries, scope: Scope): Promise<number> {
  const { sum } = await db
    .selectFrom("volumes")
    .select(sql<number>`coalesce(sum(size_gb), 0)::int`.as("sum"))
    .where(isInScope(scope))
    .where("state", "<>", "deleting")
    .executeTakeFirstOrThrow();
  return sum;
}

/** For metrics: all organisations together. */
export async function countVolumes(db: Queries): Promise<{ attached: number; free: number; gb: number }> {
  return await db
    .selectFrom("volumes")
    .select([
      sql<number>`(count(*) filter (where session_id is not null))::int`.as("attached"),
      sql<number>`(count(*) filter (where session_id is null))::int`.as("free"),
      sql<number>`coalesce(sum(size_gb), 0)::int`.as("gb"),
    ])
    .where("state", "=", "ready")
    .executeTakeFirstOrThrow();
}

export async function setSize(db: Queries, id: string, sizeGb: number): Promise<VolumeRow> {
  return await db
    .updateTable("volumes")
    .set({ size_gb: sizeGb })
    .where("id", "=", id)
    .returningAll()
    .executeTakeFirstOrThrow();
}

export async function markDeleting(db: Queries, id: string): Promise<void> {
  await db.updateTable("volumes").set({ state: "deleting" }).where("id", "=", id).execute();
}

export async function deleteVolumeRow(db: Queries, id: string): Promise<void> {
  await db.deleteFrom("volumes").where("id", "=", id).where("state", "<>", "ready").execute();
}

/** Volumes that are to be deleted, and those that their maker did not finish. */
export async function listUnfinished(db: Queries): Promise<VolumeRow[]> {
  return await db
    .selectFrom("volumes")
    .selectAll()
    .where((row) =>
      row.or([
        row("state", "=", "deleting"),
        row.and([row("state", "=", "making"), row("created_at", "<", MADE_WITHIN)]),
      ]),
    )
    .limit(100)
    .execute();
}

/** Takes a volume whose row the caller has locked. */
export async function setHolder(db: Queries, id: string, sessionId: string): Promise<void> {
  await db.updateTable("volumes").set({ session_id: sessionId }).where("id", "=", id).execute();
}

/** The volume that the session gives back. Undefined if it has none. */
export async function takeBack(db: Queries, sessionId: string): Promise<VolumeRow | undefined> {
  return await db
    .updateTable("volumes")
    .set({ session_id: null, last_saved_at: sql<Date>`now()` })
    .where("session_id", "=", sessionId)
    .returningAll()
    .executeTakeFirst();
}

/** The volume of a session that keeps it, and whose machine is gone. Undefined if it has none. */
export async function markSaved(db: Queries, sessionId: string): Promise<VolumeRow | undefined> {
  return await db
    .updateTable("volumes")
    .set({ last_saved_at: sql<Date>`now()` })
    .where("session_id", "=", sessionId)
    .returningAll()
    .executeTakeFirst();
}

/** Sessions that have a volume and will never run again, or whose row is gone. */
export async function listHoldersWithoutUse(db: Queries): Promise<string[]> {
  const rows = await db
    .selectFrom("volumes")
    .leftJoin("sessions", "sessions.id", "volumes.session_id")
    .select("volumes.session_id")
    .where("volumes.session_id", "is not", null)
    .where((row) =>
      row.or([
        row("sessions.id", "is", null),
        row.and([
          row("sessions.state", "in", ["destroyed", "failed"]),
          row("sessions.machine_released_at", "is not", null),
        ]),
        row.and([row("sessions.state", "=", "lifetime_expired"), row("sessions.op", "is", null)]),
      ]),
    )
    .limit(100)
    .execute();
  return rows.flatMap(({ session_id: id }) => id ?? []);
}

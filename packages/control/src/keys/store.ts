/** SQL of API keys, as their managers see them. */
import { type Insertable, type Selectable, sql } from "kysely";
import type { Scope } from "../access/principal.ts";
import type { Queries } from "../db/pool.ts";
import type { Tables } from "../db/tables.ts";

export type KeyRow = Selectable<Tables["api_keys"]>;

export async function insertKey(db: Queries, row: Insertable<Tables["api_keys"]>): Promise<KeyRow> {
  return await db.insertInto("api_keys").values(row).returningAll().executeTakeFirstOrThrow();
}

export async function countKeys(db: Queries, orgId: string): Promise<number> {
  const { count } = await db
    .selectFrom("api_keys")
    .select(sql<number>`count(*)::int`.as("count"))
    .where("org_id", "=", orgId)
    .where("revoked_at", "is", null)
    .executeTakeFirstOrThrow();
  return count;
}

/** Keys that are not revoked, newest first. */
export async function listKeys(db: Queries, scope: Scope): Promise<KeyRow[]> {
  return await db
    .selectFrom("api_keys")
    .selectAll()
    .where(isKeyInScope(scope))
    .where("revoked_at", "is", null)
    .orderBy("created_at", "desc")
    .orderBy("id", "desc")
    .execute();
}

export async function findKey(db: Queries, scope: Scope, id: string): Promise<KeyRow | undefined> {
  return await db
    .selectFrom("api_keys")
    .selectAll()
    .where(isKeyInScope(scope))
    .where("id", "=", id)
    .executeTakeFirst();
}

export async function setRevoked(db: Queries, id: string): Promise<void> {
  await db
    .updateTable("api_keys")
    .set({ revoked_at: sql<Date>`now()` })
    .where("id", "=", id)
    .where("revoked_at", "is", null)
    .execute();
}

/** Whether the organisation has a key, besides this one, that can manage its keys and does not expire. */
export async function hasOtherManager(
  db: Queries,
  { org_id: orgId, id }: Pick<KeyRow, "org_id" | "id">,
): Promise<boolean> {
  const row = await db
    .selectFrom("api_keys")
    .select("id")
    .where("org_id", "=", orgId)
    .where("id", "<>", id)
    .where("role", "=", "full")
    .where("scoped_project_id", "is", null)
    .where("expires_at", "is", null)
    .where("revoked_at", "is", null)
    .executeTakeFirst();
  return row !== undefined;
}

function isKeyInScope({ orgId, projectId }: Scope) {
  return projectId === null
    ? sql<boolean>`org_id = ${orgId}`
    : sql<boolean>`(org_id = ${orgId} and scoped_project_id = ${projectId})`;
}

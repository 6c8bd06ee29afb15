/** SQL of credentials for registries. */
import { type Insertable, type Selectable, sql } from "kysely";
import type { Scope } from "../access/principal.ts";
import { isInScope } from "../access/store.ts";
import type { Queries } from "../db/pool.ts";
import { isUniqueViolation } from "../db/postgres-errors.ts";
import type { RegistryCredentialTable } from "../db/tables.ts";

export type CredentialRow = Selectable<RegistryCredentialTable>;

export async function insertCredential(
  db: Queries,
  row: Insertable<RegistryCredentialTable>,
): Promise<CredentialRow | "name_taken"> {
  try {
    return await db.insertInto("registry_credentials").values(row).returningAll().executeTakeFirstOrThrow();
  } catch (error) {
    if (isUniqueViolation(error, "registry_credentials_name")) return "name_taken";
    throw error;
  }
}

/** Newest first. */
export async function listCredentialRows(db: Queries, scope: Scope): Promise<CredentialRow[]> {
  return await db
    .selectFrom("registry_credentials")
    .selectAll()
    .where(isInScope(scope))
    .orderBy("created_at", "desc")
    .orderBy("id", "desc")
    .execute();
}

/** The newest credential of exactly this project, or without one of the organisation itself, for a registry. */
export async function findForRegistry(
  db: Queries,
  { orgId, projectId }: Scope,
  registry: string,
): Promise<CredentialRow | undefined> {
  return await db
    .selectFrom("registry_credentials")
    .selectAll()
    .where("org_id", "=", orgId)
    .where("project_id", "is not distinct from", projectId)
    .where("registry_host", "=", registry)
    .orderBy("created_at", "desc")
    .orderBy("id", "desc")
    .limit(1)
    .executeTakeFirst();
}

export async function countCredentials(db: Queries, orgId: string): Promise<number> {
  const { count } = await db
    .selectFrom("registry_credentials")
    .select(sql<number>`count(*)::int`.as("count"))
    .where("org_id", "=", orgId)
    .executeTakeFirstOrThrow();
  return count;
}

/** Deletes and returns the credentials in scope, or those of them with this name. */
export async function deleteCredentials(db: Queries, scope: Scope, name?: string): Promise<CredentialRow[]> {
  let query = db.deleteFrom("registry_credentials").where(isInScope(scope));
  if (name !== undefined) query = query.where("name", "=", name);
  return await query.returningAll().execute();
}

/** SQL of projects, as their managers see them. */
import { type Insertable, type Selectable, sql, type Updateable } from "kysely";
import type { Scope } from "../access/principal.ts";
import type { Queries } from "../db/pool.ts";
import { isUniqueViolation } from "../db/postgres-errors.ts";
import type { Tables } from "../db/tables.ts";

export type ProjectRow = Selectable<Tables["projects"]>;

export async function insertProject(
  db: Queries,
  row: Insertable<Tables["projects"]>,
): Promise<ProjectRow | "name_taken"> {
  return await orNameTaken(db.insertInto("projects").values(row).returningAll().executeTakeFirstOrThrow());
}

export async function updateProject(
  db: Queries,
  id: string,
  change: Updateable<Tables["projects"]>,
): Promise<ProjectRow | "name_taken"> {
  return await orNameTaken(
    db.updateTable("projects").set(change).where("id", "=", id).returningAll().executeTakeFirstOrThrow(),
  );
}

/** The default project first, then the others by name. */
export async function listProjects(db: Queries, scope: Scope): Promise<ProjectRow[]> {
  return await db
    .selectFrom("projects")
    .selectAll()
    .where(isVisible(scope))
    .orderBy("is_default", "desc")
    .orderBy("name")
    .execute();
}

export async function findProject(db: Queries, scope: Scope, id: string): Promise<ProjectRow | undefined> {
  return await db
    .selectFrom("projects")
    .selectAll()
    .where(isVisible(scope))
    .where("id", "=", id)
    .executeTakeFirst();
}

/**
 * As `findProject`, and locks the row until the transaction ends. Rows of the project can be inserted meanwhile: a stronger lock
 * would wait for transactions that wait for the organisation's.
 */
export async function lockProject(db: Queries, scope: Scope, id: string): Promise<ProjectRow | undefined> {
  return await db
    .selectFrom("projects")
    .selectAll()
    .where(isVisible(scope))
    .where("id", "=", id)
    .forNoKeyUpdate()
    .executeTakeFirst();
}

export async function countProjects(db: Queries, orgId: string): Promise<number> {
  const { count } = await db
    .selectFrom("projects")
    .select(sql<number>`count(*)::int`.as("count"))
    .where(isVisible({ orgId, projectId: null }))
    .executeTakeFirstOrThrow();
  return count;
}

function isVisible({ orgId, projectId }: Scope) {
  return projectId === null
    ? sql<boolean>`(org_id = ${orgId} and deleted_at is null)`
    : sql<boolean>`(org_id = ${orgId} and id = ${projectId} and deleted_at is null)`;
}

async function orNameTaken(written: Promise<ProjectRow>): Promise<ProjectRow | "name_taken"> {
  return await written.catch((error: unknown) => {
    if (isUniqueViolation(error, "projects_name")) return "name_taken" as const;
    throw error;
  });
}

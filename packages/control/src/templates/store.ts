/** SQL of templates that organisations saved. */
import { type Insertable, type Selectable, sql } from "kysely";
import type { Scope } from "../access/principal.ts";
import { isInScope } from "../access/store.ts";
import type { Queries } from "../db/pool.ts";
import type { TemplateTable } from "../db/tables.ts";

/** One version of a template that its organisation saved. */
export type TemplateRow = Selectable<TemplateTable>;

/** The next version number of a name. Numbers are never reused. Locks the name until the transaction ends. */
export async function takeNextVersion(tx: Queries, orgId: string, name: string): Promise<number> {
  const row = await tx
    .insertInto("template_names")
    .values({ org_id: orgId, name, last_version: 1 })
    .onConflict((at) =>
      at
        .columns(["org_id", "name"])
        .doUpdateSet({ last_version: sql<number>`template_names.last_version + 1` }),
    )
    .returning("last_version")
    .executeTakeFirstOrThrow();
  return row.last_version;
}

export async function insertTemplate(db: Queries, template: Insertable<TemplateTable>): Promise<TemplateRow> {
  return await db.insertInto("templates").values(template).returningAll().executeTakeFirstOrThrow();
}

/** Without a scope, for background work. */
export async function findVersionById(db: Queries, id: string): Promise<TemplateRow | undefined> {
  return await db.selectFrom("templates").selectAll().where("id", "=", id).executeTakeFirst();
}

/** Ordered by name, newest version first. Only versions of `name`, if given. */
export async function listVersions(db: Queries, scope: Scope, name?: string): Promise<TemplateRow[]> {
  let query = visible(db, scope).orderBy("name").orderBy("version", "desc");
  if (name !== undefined) query = query.where("name", "=", name);
  return await query.execute();
}

/** Locks a version, by default the newest: it cannot be deleted before the transaction ends. */
export async function lockVersion(
  tx: Queries,
  scope: Scope,
  { name, version }: { name: string; version?: number },
): Promise<TemplateRow | undefined> {
  let query = visible(tx, scope).where("name", "=", name).orderBy("version", "desc").limit(1).forShare();
  if (version !== undefined) query = query.where("version", "=", version);
  return await query.executeTakeFirst();
}

/** Deletes and returns the versions; empty if the caller has no such template. */
export async function removeVersions(
  db: Queries,
  scope: Scope,
  { name, version }: { name: string; version?: number },
): Promise<TemplateRow[]> {
  let query = db.deleteFrom("templates").where(isInScope(scope)).where("name", "=", name);
  if (version !== undefined) query = query.where("version", "=", version);
  return await query.returningAll().execute();
}

/** `<name>@<version>` by snapshot id, for those of the snapshots that are the caller's templates. */
export async function findTemplateNames(
  db: Queries,
  scope: Scope,
  snapshotIds: string[],
): Promise<Map<string, string>> {
  if (snapshotIds.length === 0) return new Map();
  const rows = await visible(db, scope).where("id", "in", snapshotIds).execute();
  return new Map(rows.map(({ id, name, version }) => [id, `${name}@${version}`]));
}

function visible(db: Queries, scope: Scope) {
  return db.selectFrom("templates").selectAll().where(isInScope(scope));
}

/** Keeps only the ids that are versions of templates. */
export async function keepOnlyVersions(db: Queries, ids: string[]): Promise<string[]> {
  if (ids.length === 0) return [];
  const rows = await db.selectFrom("templates").select("id").where("id", "in", ids).execute();
  return rows.map(({ id }) => id);
}

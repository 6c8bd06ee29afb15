/** SQL that reads builds, and deletes those of a template. A build makes one version of a template of an image. */
import { type Selectable, sql } from "kysely";
import type { Scope } from "../access/principal.ts";
import { isInScope } from "../access/store.ts";
import type { Queries } from "../db/pool.ts";
import type { TemplateBuildTable } from "../db/tables.ts";

/** Without its log, which may be long. */
export type BuildRow = Omit<Selectable<TemplateBuildTable>, "log">;
/** `position`: in the queue, from 1 on; null unless it is queued. */
export type QueuedRow = BuildRow & { position: number | null };

const COLUMNS = sql.raw(
  [
    ...["id", "org_id", "project_id", "seq", "name", "version", "description", "reference", "credentials_of"],
    ...["session_id", "layout"],
    ...[
      "sizes",
      "state",
      "created_at",
      "attempts",
      "begun_at",
      "not_before",
      "claimed_until",
      "progress",
      "error",
      "image",
    ],
  ]
    .map((column) => `builds.${column}`)
    .join(", "),
);

/**
 * The queue: every organisation's first build, then every one's second. A build that runs counts as the first of its
 * organisation. Among equals, the organisation comes first whose last build began longest ago.
 */
const QUEUE = sql<{ id: string; position: number }>`
  select id, row_number() over (order by nth, last_begun nulls first, seq)::int as position from (
    select id, seq, state, row_number() over (
      partition by org_id order by case state when 'building' then 0 else 1 end, seq
    ) as nth, (
      select max(begun_at) from template_builds others where others.org_id = template_builds.org_id
    ) as last_begun
    from template_builds where state in ('queued', 'building')
  ) unfinished where state = 'queued'`;

/** By name, newest version first. Only builds of `name`, if given. */
export async function listBuilds(
  db: Queries,
  { orgId, projectId }: Scope,
  name: string | null = null,
): Promise<QueuedRow[]> {
  const { rows } = await sql<QueuedRow>`
    select ${COLUMNS}, queue.position
    from template_builds builds left join (${QUEUE}) queue on queue.id = builds.id
    where builds.org_id = ${orgId} and (${projectId}::text is null or builds.project_id = ${projectId})
      and (${name}::text is null or builds.name = ${name})
    order by builds.name, builds.version desc`.execute(db);
  return rows;
}

/** The next build of the queue whose time has come. */
export async function findNextQueued(db: Queries): Promise<string | undefined> {
  const { rows } = await sql<{ id: string }>`
    select queue.id from (${QUEUE}) queue join template_builds builds on builds.id = queue.id
    where builds.not_before is null or builds.not_before <= now()
    order by queue.position limit 1`.execute(db);
  return rows[0]?.id;
}

/** Builds of all organisations that wait or run. */
export async function countBuilds(db: Queries): Promise<{ queued: number; building: number }> {
  return await db
    .selectFrom("template_builds")
    .select([
      sql<number>`(count(*) filter (where state = 'queued'))::int`.as("queued"),
      sql<number>`(count(*) filter (where state = 'building'))::int`.as("building"),
    ])
    .where("state", "in", ["queued", "building"])
    .executeTakeFirstOrThrow();
}

/** Without a scope, for background work. */
export async function findBuildById(db: Queries, id: string): Promise<BuildRow | undefined> {
  const { rows } = await sql<BuildRow>`
    select ${COLUMNS} from template_builds builds where id = ${id}`.execute(db);
  return rows[0];
}

/** The lines that were kept of a build that has ended. */
export async function findKeptLog(db: Queries, id: string) {
  const row = await db.selectFrom("template_builds").select("log").where("id", "=", id).executeTakeFirst();
  return row?.log ?? undefined;
}

/** Keeps only the ids of builds whose work is wanted, or is a template: of one that failed the node needs nothing. */
export async function keepOnlyBuilds(db: Queries, ids: readonly string[]): Promise<Set<string>> {
  if (ids.length === 0) return new Set();
  const rows = await db
    .selectFrom("template_builds")
    .select("id")
    .where("id", "in", ids)
    .where("state", "<>", "failed")
    .execute();
  return new Set(rows.map(({ id }) => id));
}

/** Deletes and returns builds of a template, those that are ready included. */
export async function removeBuilds(
  db: Queries,
  scope: Scope,
  { name, version }: { name: string; version?: number },
): Promise<Pick<BuildRow, "id" | "org_id" | "project_id" | "name" | "version">[]> {
  let query = db.deleteFrom("template_builds").where(isInScope(scope)).where("name", "=", name);
  if (version !== undefined) query = query.where("version", "=", version);
  return await query.returning(["id", "org_id", "project_id", "name", "version"]).execute();
}

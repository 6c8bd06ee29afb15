/** SQL of events. Readers see events that have a position and are within the retention. */
import { LIMITS } from "@vivarium/contract/api";
import { type Insertable, type Selectable, type SelectQueryBuilder, sql } from "kysely";
import type { Scope } from "../access/principal.ts";
import type { Queries } from "../db/pool.ts";
import type { EventTable, Tables } from "../db/tables.ts";

export type EventRow = Selectable<EventTable> & { position: number };

/** Rows of one insert. Each row has six parameters, and a statement takes 65,535. */
const AT_ONCE = 1000;

export async function insertEvents(db: Queries, rows: readonly Insertable<EventTable>[]): Promise<void> {
  for (let start = 0; start < rows.length; start += AT_ONCE) {
    await db
      .insertInto("events")
      .values(rows.slice(start, start + AT_ONCE))
      .execute();
  }
}

/** Inserts the row, unless one of the same type, project, session, `code` and `op` was written in the last minute. */
export async function insertUnlessRecent(
  db: Queries,
  row: Pick<Insertable<EventTable>, "id" | "type" | "org_id" | "project_id" | "session_id" | "data">,
): Promise<void> {
  await sql`insert into events (id, type, org_id, project_id, session_id, data)
    select id, type, org_id, project_id, session_id, data
    from jsonb_to_record(${JSON.stringify({ ...row, data: JSON.parse(row.data) })}::jsonb) as fresh (
      id text, type text, org_id text, project_id text, session_id text, data jsonb
    )
    where not exists (
      select from events as known
      where known.created_at > service_now() - interval '1 minute'
        and known.type = fresh.type and known.org_id = fresh.org_id
        and known.project_id is not distinct from fresh.project_id
        and known.session_id is not distinct from fresh.session_id
        and known.data -> 'code' = fresh.data -> 'code' and known.data -> 'op' = fresh.data -> 'op'
    )`.execute(db);
}

export interface EventFilter {
  scope: Scope;
  /** Whole types, and groups such as `session.`; absent: all types. */
  types?: { exact: string[]; groups: string[] };
  sessionId?: string;
}

type Reading<O> = SelectQueryBuilder<Tables, "events", O>;

function visible<O>(query: Reading<O>, { orgId, projectId }: Scope): Reading<O> {
  const inOrg = query
    .where("org_id", "=", orgId)
    .where("position", "is not", null)
    .where("created_at", ">=", oldestKept());
  return projectId === null ? inOrg : inOrg.where("project_id", "=", projectId);
}

function matching<O>(query: Reading<O>, { scope, types, sessionId }: EventFilter): Reading<O> {
  let matched = visible(query, scope);
  if (sessionId !== undefined) matched = matched.where("session_id", "=", sessionId);
  if (types) {
    matched = matched.where((eb) =>
      eb.or([
        eb("type", "=", sql<string>`any(${types.exact}::text[])`),
        ...types.groups.map((group) => eb(sql<boolean>`starts_with(type, ${group})`, "=", true)),
      ]),
    );
  }
  return matched;
}

/** Events after a position, oldest first. */
export async function listEvents(
  db: Queries,
  filter: EventFilter,
  { after, limit }: { after: number; limit: number },
): Promise<EventRow[]> {
  const rows = await matching(db.selectFrom("events").selectAll(), filter)
    .where("position", ">", after)
    .orderBy("position")
    .limit(limit)
    .execute();
  return rows as EventRow[];
}

/** The number of events that follow, counted up to `limit`. */
export async function countEvents(
  db: Queries,
  filter: EventFilter,
  { after, limit }: { after: number; limit: number },
): Promise<number> {
  const { count } = await db
    .selectFrom(
      matching(db.selectFrom("events").select("position"), filter)
        .where("position", ">", after)
        .limit(limit)
        .as("later"),
    )
    .select(sql<number>`count(*)::int`.as("count"))
    .executeTakeFirstOrThrow();
  return count;
}

export async function findPosition(db: Queries, scope: Scope, id: string): Promise<number | undefined> {
  const row = await visible(db.selectFrom("events").select("position"), scope)
    .where("id", "=", id)
    .executeTakeFirst();
  return row?.position ?? undefined;
}

export async function findNewestId(db: Queries, scope: Scope): Promise<string | undefined> {
  const row = await visible(db.selectFrom("events").select("id"), scope)
    .orderBy("position", "desc")
    .limit(1)
    .executeTakeFirst();
  return row?.id;
}

/** The last position that was assigned, and whether events wait for one. */
export async function readHead(db: Queries): Promise<{ position: number; isWaiting: boolean }> {
  return await db
    .selectFrom("event_head")
    .select("position")
    .select(sql<boolean>`exists (select from events where position is null)`.as("isWaiting"))
    .executeTakeFirstOrThrow();
}

/** Organisations with events after this position. */
export async function listOrgsAfter(db: Queries, position: number): Promise<string[]> {
  const rows = await db
    .selectFrom("events")
    .select("org_id")
    .distinct()
    .where("position", ">", position)
    .execute();
  return rows.map(({ org_id }) => org_id);
}

/** The last position that was assigned. Its row is locked until the transaction ends. */
export async function lockHead(tx: Queries): Promise<number> {
  const { position } = await tx
    .selectFrom("event_head")
    .select("position")
    .forUpdate()
    .executeTakeFirstOrThrow();
  return position;
}

/** Assigns the next positions to waiting events, in the order of writing. Returns their number. */
export async function assignPositions(tx: Queries, after: number, limit: number): Promise<number> {
  const assigned = await sql`update events set position = ${after} + waiting.rank
    from (
      select seq, row_number() over (order by seq) as rank from events
      where position is null order by seq limit ${limit}
    ) as waiting
    where events.seq = waiting.seq`.execute(tx);
  const count = Number(assigned.numAffectedRows ?? 0);
  await tx
    .updateTable("event_head")
    .set({ position: after + count })
    .execute();
  return count;
}

export async function deleteOldEvents(db: Queries): Promise<void> {
  await db.deleteFrom("events").where("created_at", "<", oldestKept()).execute();
}

function oldestKept() {
  return sql<Date>`service_now() - make_interval(secs => ${LIMITS.eventRetentionMs / 1000})`;
}

/** SQL of the sessions' egress logs, and of the cursor of each node's log. */
import { LIMITS } from "@vivarium/contract/api";
import type { EgressEntry } from "@vivarium/contract/gateway";
import { type Selectable, sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import type { EgressLogTable } from "../db/tables.ts";

export type EgressLogRow = Selectable<EgressLogTable>;

export async function readCursor(db: Queries, nodeId: string): Promise<string | undefined> {
  const row = await db
    .selectFrom("node_reports")
    .select("cursor")
    .where("node_id", "=", nodeId)
    .executeTakeFirst();
  return row?.cursor;
}

/** False when another process has moved the cursor from `from`, and so has written these lines already. */
export async function moveCursor(
  db: Queries,
  nodeId: string,
  { from, to }: { from: string | undefined; to: string },
): Promise<boolean> {
  const moved =
    from === undefined
      ? await sql`insert into node_reports (node_id, cursor) values (${nodeId}, ${to})
          on conflict do nothing returning 1`.execute(db)
      : await sql`update node_reports set cursor = ${to}
          where node_id = ${nodeId} and cursor = ${from} returning 1`.execute(db);
  return moved.rows.length > 0;
}

/** Writes lines, except those of deleted sessions, and deletes the oldest ones over the limit. */
export async function insertLines(db: Queries, entries: readonly EgressEntry[]): Promise<void> {
  if (entries.length === 0) return;
  const lines = entries.map((entry) => ({
    session_id: entry.machine_id.split("-", 1)[0] ?? "",
    at: instant(entry.at),
    kind: entry.kind,
    host: entry.host === undefined ? null : storable(entry.host),
    address: entry.address === undefined ? null : storable(entry.address),
    port: entry.port ?? null,
    decision: entry.verdict,
    reason: entry.reason,
    connection: entry.connection ?? null,
    method: entry.method === undefined ? null : storable(entry.method),
    path: entry.path === undefined ? null : storable(entry.path, LONGEST_PATH),
    rule: entry.rule ?? null,
    status: entry.status ?? null,
    is_unscanned: entry.is_unscanned ?? null,
    bytes_out: entry.bytes_out,
    bytes_in: entry.bytes_in,
    count: entry.count ?? 1,
  }));
  await sql`insert into egress_log
      (session_id, at, kind, host, address, port, decision, reason, connection, method, path, rule, status,
        is_unscanned, bytes_out, bytes_in, count)
    select line.session_id, line.at, line.kind, line.host, line.address, line.port, line.decision, line.reason,
      line.connection, line.method, line.path, line.rule, line.status, line.is_unscanned, line.bytes_out,
      line.bytes_in, line.count
    from jsonb_to_recordset(${JSON.stringify(lines)}::jsonb) as line (
      session_id text, at timestamptz, kind text, host text, address text, port integer, decision text,
      reason text, connection text, method text, path text, rule integer, status integer,
      is_unscanned boolean, bytes_out bigint, bytes_in bigint, count bigint
    )
    where exists (select from sessions where sessions.id = line.session_id)`.execute(db);
  await trim(db, [...new Set(lines.map(({ session_id }) => session_id))]);
}

/**
 * Keeps the newest lines of each of six parts: DNS questions, requests through Connections and other connections, allowed and
 * denied. So a flood of one part does not push out another.
 */
async function trim(db: Queries, sessionIds: string[]): Promise<void> {
  // By two comparisons, because the index has the first one. The second one passes over the lines of one other part at most.
  // Materialized: a plan that counts a part anew for each of its lines takes a minute for a full log.
  await sql`with full_part as materialized (
      select * from (
        select id, is_question, is_request, part.decision, (
          select seq from egress_log
          where session_id = id and (kind = 'dns') = is_question and (kind = 'connection') = is_request
            and egress_log.decision = part.decision
          order by seq desc offset ${LIMITS.egressLogLines} limit 1
        ) as last
        from unnest(${sessionIds}::text[]) as given (id),
          (values (true, false), (false, true), (false, false)) as what (is_question, is_request),
          (values ('allowed'), ('denied')) as part (decision)
      ) as part where last is not null
    )
    delete from egress_log using full_part
    where egress_log.session_id = full_part.id and (egress_log.kind = 'dns') = full_part.is_question
      and (egress_log.kind = 'connection') = full_part.is_request
      and egress_log.decision = full_part.decision and egress_log.seq <= full_part.last`.execute(db);
}

export interface LogFilter {
  sessionId: string;
  decision?: string;
  host?: string;
  since?: Date;
  /** Only lines with a lower `seq`. */
  before?: number;
  limit: number;
}

/** Newest first. */
export async function listLines(db: Queries, filter: LogFilter): Promise<EgressLogRow[]> {
  let query = db.selectFrom("egress_log").selectAll().where("session_id", "=", filter.sessionId);
  if (filter.decision !== undefined) query = query.where("decision", "=", filter.decision);
  if (filter.host !== undefined) query = query.where("host", "=", filter.host);
  if (filter.since) query = query.where("at", ">=", filter.since);
  if (filter.before !== undefined) query = query.where("seq", "<", filter.before);
  return await query.orderBy("seq", "desc").limit(filter.limit).execute();
}

export async function deleteOldLines(db: Queries): Promise<void> {
  const seconds = LIMITS.egressLogRetentionMs / 1000;
  await db
    .deleteFrom("egress_log")
    .where("at", "<", sql<Date>`service_now() - make_interval(secs => ${seconds})`)
    .execute();
}

/** Longest path of a request that is kept. */
const LONGEST_PATH = 1_024;

/** Replaces what a text column refuses, and cuts: a guest chooses its names, and must not stop the log. */
export function storable(text: string, longest = 255): string {
  return text.toWellFormed().replaceAll("\0", "\ufffd").slice(0, longest);
}

function instant(text: string): string {
  const at = new Date(text);
  return (Number.isNaN(at.getTime()) ? new Date() : at).toISOString();
}

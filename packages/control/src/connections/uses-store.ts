/** SQL of uses of Connections that have no entry in the audit log yet, counted by minute. */
import { sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import type { ConnectionUseTable } from "../db/tables.ts";
import { THIS_MINUTE } from "../db/time.ts";

/** Requests of one minute through one Connection. */
export interface MinuteCounts {
  session_id: string;
  name: string;
  /** RFC 3339: the beginning of the minute, by the node's clock. */
  minute: string;
  /** Requests that were sent with the credential, at least in part. */
  sent: number;
  /** Answers that carried it. */
  reflected: number;
  /** Requests that the Connection refused. */
  refused: number;
}

/** A node reports requests some seconds after they began. Those of the end of a minute belong into its entry. */
const REPORTED_WITHIN_S = 10;

/**
 * Adds to the counts of minutes. One that has not begun yet, by a node whose clock is ahead, counts as the current one. In a
 * fixed order, so that two reports cannot deadlock.
 */
export async function addCounts(tx: Queries, counts: readonly MinuteCounts[]): Promise<void> {
  if (counts.length === 0) return;
  await sql`insert into connection_uses (session_id, name, minute, sent, reflected, refused)
    select session_id, name, least(used.minute, ${THIS_MINUTE}), sum(sent), sum(reflected), sum(refused)
    from jsonb_to_recordset(${JSON.stringify(counts)}::jsonb) as used (
      session_id text, name text, minute timestamptz, sent bigint, reflected bigint, refused bigint
    )
    where exists (
      select from connections where connections.session_id = used.session_id and connections.name = used.name
    )
    group by 1, 2, 3
    order by 1, 2, 3
    on conflict (session_id, name, minute) do update set
      sent = connection_uses.sent + excluded.sent,
      reflected = connection_uses.reflected + excluded.reflected,
      refused = connection_uses.refused + excluded.refused`.execute(tx);
}

export type CountedUses = ConnectionUseTable & { org_id: string; host: string };

/** Deletes and returns the counts of minutes that are over, oldest first. One process gets each. */
export async function takeCounts(tx: Queries, limit: number): Promise<CountedUses[]> {
  const taken = await sql<CountedUses>`
    with taken as (
      delete from connection_uses where (session_id, name, minute) in (
        select session_id, name, minute from connection_uses
        where minute < date_trunc('minute', service_now() - make_interval(secs => ${REPORTED_WITHIN_S}), 'UTC')
        order by minute, session_id, name limit ${limit} for update skip locked
      ) returning *
    )
    select taken.*, sessions.org_id, connections.host
    from taken
    join sessions on sessions.id = taken.session_id
    join connections on connections.session_id = taken.session_id and connections.name = taken.name
    order by minute, taken.session_id, taken.name`.execute(tx);
  return taken.rows;
}

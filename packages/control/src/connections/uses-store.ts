/** SQL of uses of Connections that have no entry in the audit log yet, counted by minute. */
import { sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import type { ConnectionUseTable } from "../db/tables.ts";
import { THIS_MINUTE } from "../db/time.ts";
import type { Uses } from "./store.ts";

/** Adds to the counts of the current minute. In a fixed order, so that two reports cannot deadlock. */
export async function addCounts(tx: Queries, uses: readonly Uses[]): Promise<void> {
  const counts = uses.map(({ session_id, name, sent, refused, reflected }) => ({
    ...{ session_id, name, sent, refused },
    reflected: reflected.reduce((sum, { count }) => sum + count, 0),
  }));
  await sql`insert into connection_uses (session_id, name, minute, sent, reflected, refused)
    select session_id, name, ${THIS_MINUTE}, sent, reflected, refused
    from jsonb_to_recordset(${JSON.stringify(counts)}::jsonb) as used (
      session_id text, name text, sent bigint, reflected bigint, refused bigint
    )
    where exists (
      select from connections where connections.session_id = used.session_id and connections.name = used.name
    )
    order by session_id, name
    on conflict (session_id, name, minute) do update set
      sent = connection_uses.sent + excluded.sent,
      reflected = connection_uses.reflected + excluded.reflected,
      refused = connection_uses.refused + excluded.refused`.execute(tx);
}

export type CountedUses = ConnectionUseTable & { org_id: string; host: string };

/** Deletes and returns the counts of past minutes, oldest first. One process gets each. */
export async function takeCounts(tx: Queries, limit: number): Promise<CountedUses[]> {
  const taken = await sql<CountedUses>`
    with taken as (
      delete from connection_uses where (session_id, name, minute) in (
        select session_id, name, minute from connection_uses where minute < ${THIS_MINUTE}
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

/** SQL of denied connections and DNS questions, summed up by minute. */
import type { EgressEntry } from "@vivarium/contract/gateway";
import { sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import type { EgressDenialTable } from "../db/tables.ts";
import { THIS_MINUTE } from "../db/time.ts";
import type { EventOwner } from "../events/append.ts";
import { storable } from "./log-store.ts";

/**
 * Whether a session asked for more DNS names than an hour allows. The names are not kept: they all differ, and may
 * carry the data of a DNS tunnel.
 */
export const isAnomaly = ({ reason }: { reason: string }) => reason === "too_many_names";

/**
 * Adds the denied entries to the counts of the current minute. The rows are written in a fixed order, so that two
 * reports cannot deadlock.
 */
export async function addDenials(db: Queries, entries: readonly EgressEntry[]): Promise<void> {
  const denied = entries
    .filter(({ verdict }) => verdict === "denied")
    .map((entry) => ({
      session_id: entry.machine_id.split("-", 1)[0] ?? "",
      host: isAnomaly(entry) ? "" : storable(entry.host ?? ""),
      address: storable(entry.address ?? ""),
      port: entry.port ?? 0,
      reason: entry.reason,
      count: entry.count ?? 1,
    }));
  if (denied.length === 0) return;
  await sql`insert into egress_denials (session_id, minute, host, address, port, reason, count)
    select session_id, ${THIS_MINUTE}, host, address, port, reason, sum(count)
    from jsonb_to_recordset(${JSON.stringify(denied)}::jsonb) as denied (
      session_id text, host text, address text, port integer, reason text, count bigint
    )
    where exists (select from sessions where sessions.id = denied.session_id)
    group by session_id, host, address, port, reason
    order by session_id, host, address, port, reason
    on conflict (session_id, minute, host, address, port, reason)
      do update set count = egress_denials.count + excluded.count`.execute(db);
}

export type Denial = Omit<EgressDenialTable, "session_id" | "minute"> & EventOwner;

/** Deletes and returns the sums of past minutes, by minute and session, most frequent first. One process gets each. */
export async function takeDenials(tx: Queries): Promise<(Denial & { minute: Date })[]> {
  const taken = await sql<Denial & { minute: Date }>`
    with taken as (delete from egress_denials where minute < ${THIS_MINUTE} returning *)
    select sessions.id, sessions.org_id, sessions.project_id, minute, host, address, port, reason, count
    from taken join sessions on sessions.id = taken.session_id
    order by minute, sessions.id, count desc, host, address, port, reason`.execute(tx);
  return taken.rows;
}

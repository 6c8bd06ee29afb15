/** SQL of the bytes sent and received, by session, UTC day and machine. Days are those of `service_now()`. */
import type { MachineCounters } from "@vivarium/contract/node";
import { sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import { TODAY } from "../db/time.ts";
import type { EventOwner } from "../events/append.ts";

/**
 * Saves the counters. A machine's day starts at its counter of the last day on which it was seen. A lower counter than
 * the saved one, from an older report, changes nothing.
 */
export async function saveCounters(db: Queries, counters: readonly MachineCounters[]): Promise<void> {
  if (counters.length === 0) return;
  await sql`insert into egress_usage
      (session_id, day, machine_id, egress_start, egress_last, ingress_start, ingress_last)
    select sessions.id, ${TODAY}, seen.machine_id,
      coalesce(earlier.egress_last, 0), greatest(seen.egress, earlier.egress_last),
      coalesce(earlier.ingress_last, 0), greatest(seen.ingress, earlier.ingress_last)
    from unnest(
      ${counters.map(({ machine_id }) => machine_id)}::text[],
      ${counters.map(({ egress_bytes }) => egress_bytes)}::bigint[],
      ${counters.map(({ ingress_bytes }) => ingress_bytes)}::bigint[]
    ) as seen (machine_id, egress, ingress)
    join sessions on sessions.id = split_part(seen.machine_id, '-', 1)
    left join lateral (
      select egress_last, ingress_last from egress_usage
      where egress_usage.machine_id = seen.machine_id and day < ${TODAY}
      order by day desc limit 1
    ) as earlier on true
    on conflict (session_id, day, machine_id) do update set
      egress_last = greatest(egress_usage.egress_last, excluded.egress_last),
      ingress_last = greatest(egress_usage.ingress_last, excluded.ingress_last)`.execute(db);
}

export async function todayUsage(db: Queries, sessionId: string): Promise<{ date: string; bytes: number }> {
  const found = await sql<{ date: string; bytes: number }>`
    select ${TODAY} as date, coalesce(sum(egress_last - egress_start), 0)::bigint as bytes
    from egress_usage where session_id = ${sessionId} and day = ${TODAY}`.execute(db);
  return found.rows[0] ?? { date: "", bytes: 0 };
}

const NOT_REACHED = sql<boolean>`not coalesce(
  egress_capped_on = ${TODAY} and egress_capped_bytes >= egress_cap_bytes, false)`;

/** Bytes of the session's machines on one UTC day. */
export interface DayUsage {
  /** The machine's counter when the day began. */
  machineStart: number;
  /** Bytes that other machines of the session sent today. */
  others: number;
  /** The cap was reached today. */
  isReached: boolean;
}

/** Today's bytes as one machine's limit needs them. If it was not seen today, its day starts at its last counter. */
export async function dayUsageOf(db: Queries, sessionId: string, machineId: string): Promise<DayUsage> {
  const found = await sql<DayUsage>`select
      coalesce(
        (select egress_start from egress_usage where machine_id = ${machineId} and day = ${TODAY}),
        (select egress_last from egress_usage where machine_id = ${machineId} and day < ${TODAY}
          order by day desc limit 1),
        0
      )::bigint as "machineStart",
      (select coalesce(sum(egress_last - egress_start), 0) from egress_usage
        where session_id = ${sessionId} and day = ${TODAY} and machine_id <> ${machineId})::bigint as others,
      exists (
        select from sessions where id = ${sessionId} and not ${NOT_REACHED}
      ) as "isReached"`.execute(db);
  return found.rows[0] ?? { machineStart: 0, others: 0, isReached: false };
}

/** A session that reached its cap. */
interface Capped extends EventOwner {
  cap_bytes: number;
  today_bytes: number;
  /** The session had already reached a smaller cap today. */
  was_capped_today: boolean;
}

/** The given sessions that are not marked today with their current cap. */
export async function listUnmarked(
  db: Queries,
  ids: readonly string[],
): Promise<{ id: string; capBytes: number }[]> {
  const found = await sql<{ id: string; capBytes: number }>`
    select id, egress_cap_bytes as "capBytes" from sessions
    where id = any(${[...ids]}::text[]) and egress_cap_bytes is not null and ${NOT_REACHED}`.execute(db);
  return found.rows;
}

/** Sessions whose bytes of today reach their cap, and that are not marked today with that cap. */
export async function listOverCap(db: Queries): Promise<string[]> {
  const found = await sql<{ id: string }>`
    select id from sessions join (
      select session_id, sum(egress_last - egress_start) as bytes
      from egress_usage where day = ${TODAY} group by session_id
    ) as used on used.session_id = sessions.id
    where state <> 'destroyed' and used.bytes >= egress_cap_bytes and ${NOT_REACHED}`.execute(db);
  return found.rows.map(({ id }) => id);
}

/** Marks the given sessions. Returns those that no other process marked meanwhile. */
export async function markCapped(tx: Queries, ids: readonly string[]): Promise<Capped[]> {
  const marked = await sql<Capped>`
    with due as (
      select id, coalesce(egress_capped_on = ${TODAY}, false) as was_capped_today from sessions
      where id = any(${[...ids]}::text[]) and state <> 'destroyed'
        and egress_cap_bytes is not null and ${NOT_REACHED}
      for update
    )
    update sessions set egress_capped_on = ${TODAY}, egress_capped_bytes = egress_cap_bytes from due
    where sessions.id = due.id
    returning sessions.id, org_id, project_id, egress_cap_bytes as cap_bytes, was_capped_today, (
      select coalesce(sum(egress_last - egress_start), 0)::bigint from egress_usage
      where session_id = sessions.id and day = ${TODAY}
    ) as today_bytes`.execute(tx);
  return marked.rows;
}

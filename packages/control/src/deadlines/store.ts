/** SQL of activity: `last_active_at` is by `service_now()`, `busy_until` is a lease and by `now()`. */
import { sql } from "kysely";
import type { Queries } from "../db/pool.ts";

/** How long a session stays busy without renewal, which comes about once a second while an operation is in flight. */
const BUSY_LEASE_MS = 3_000;
/** How long a session stays busy after the last operation of this process: other processes renew for theirs. */
const BUSY_TAIL_MS = 1_500;

interface ActivityEntry {
  id: string;
  at: Date;
  ageMs: number;
  /** An operation is in flight, or the last one of this process has just ended. */
  use?: "busy" | "done";
}

/**
 * Moves `last_active_at` of several sessions forward, never back. If this process's clock is within a second of the
 * deadlines' clock, its time is written, so that readers get the time that they were shown. Otherwise the time is
 * computed from the age.
 */
export async function saveActivity(db: Queries, seen: ActivityEntry[]): Promise<void> {
  const ids = seen.map(({ id }) => id);
  const times = seen.map(({ at }) => at.toISOString());
  const ages = seen.map(({ ageMs }) => ageMs);
  const uses = seen.map(({ use = "" }) => use);
  await sql`update sessions set last_active_at = seen.at, busy_until = case seen.use
      when 'busy' then now() + make_interval(secs => ${BUSY_LEASE_MS / 1000})
      when 'done' then least(busy_until, now() + make_interval(secs => ${BUSY_TAIL_MS / 1000}))
      else busy_until
    end
    from (
      select id, use, case
        when abs(extract(epoch from service_now() - ${new Date().toISOString()}::timestamptz)) < 1 then given.at
        else service_now() - make_interval(secs => age / 1000)
      end as at
      from unnest(${ids}::text[], ${times}::timestamptz[], ${ages}::float8[], ${uses}::text[])
        as given (id, at, age, use)
    ) as seen
    where sessions.id = seen.id and sessions.last_active_at < seen.at and sessions.state <> 'destroyed'`.execute(
    db,
  );
}

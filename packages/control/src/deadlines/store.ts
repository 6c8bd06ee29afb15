/** SQL of activity: when each session was last used, by `service_now()`. */
import { sql } from "kysely";
import type { Queries } from "../db/pool.ts";

/** An operation in flight is written down about every second; a process that died holds nothing for longer than this. */
const BUSY_LEASE_MS = 3_000;
/** What is left of that when the last of them ends here: time for another process to say that it has one as well. */
const BUSY_REST_MS = 1_500;

interface Sighting {
  id: string;
  at: Date;
  ageMs: number;
  /** An operation is in flight, or the last one of this process has just ended. */
  use?: "busy" | "done";
}

/**
 * Moves `last_active_at` forward for several sessions at once; never back. Where our clock agrees with the one of the
 * deadlines to a second, what readers were shown is what is written; otherwise the age counts.
 */
export async function saveActivity(db: Queries, seen: Sighting[]): Promise<void> {
  const ids = seen.map(({ id }) => id);
  const times = seen.map(({ at }) => at.toISOString());
  const ages = seen.map(({ ageMs }) => ageMs);
  const uses = seen.map(({ use = "" }) => use);
  await sql`update sessions set last_active_at = seen.at, busy_until = case seen.use
      when 'busy' then now() + make_interval(secs => ${BUSY_LEASE_MS / 1000})
      when 'done' then least(busy_until, now() + make_interval(secs => ${BUSY_REST_MS / 1000}))
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

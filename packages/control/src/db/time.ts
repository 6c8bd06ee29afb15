/** The database's two clocks: `now()` measures leases, `service_now()` measures deadlines. */
import { sql } from "kysely";
import type { Queries } from "./pool.ts";

/** Today's UTC date by the deadline clock, `YYYY-MM-DD`. */
export const TODAY = sql<string>`to_char(service_now() at time zone 'UTC', 'YYYY-MM-DD')`;

/** The beginning of the current minute by the deadline clock. */
export const THIS_MINUTE = sql<Date>`date_trunc('minute', service_now(), 'UTC')`;

/** The time of the lease clock. Also shows that the database answers. */
export async function readLeaseTime(db: Queries): Promise<Date> {
  return (await db.selectNoFrom(sql<Date>`now()`.as("now")).executeTakeFirstOrThrow()).now;
}

/** For statements: the instant `ms` from now by the lease clock. */
export function leaseEnd(ms: number) {
  return sql<Date>`now() + make_interval(secs => ${ms / 1000})`;
}

/** The time of the deadline clock. */
export async function readDeadlineTime(db: Queries): Promise<Date> {
  return (await db.selectNoFrom(sql<Date>`service_now()`.as("now")).executeTakeFirstOrThrow()).now;
}

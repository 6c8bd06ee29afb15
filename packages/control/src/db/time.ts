import { sql } from "kysely";
import type { Queries } from "./pool.ts";

/** The UTC day by the deadline clock, `YYYY-MM-DD`. */
export const TODAY = sql<string>`to_char(service_now() at time zone 'UTC', 'YYYY-MM-DD')`;

/** The database's clock, which measures leases. Also shows that the database answers. */
export async function readLeaseTime(db: Queries): Promise<Date> {
  return (await db.selectNoFrom(sql<Date>`now()`.as("now")).executeTakeFirstOrThrow()).now;
}

/** For statements: `ms` from now on that clock. */
export function leaseEnd(ms: number) {
  return sql<Date>`now() + make_interval(secs => ${ms / 1000})`;
}

/** The deadline clock. */
export async function readDeadlineTime(db: Queries): Promise<Date> {
  return (await db.selectNoFrom(sql<Date>`service_now()`.as("now")).executeTakeFirstOrThrow()).now;
}

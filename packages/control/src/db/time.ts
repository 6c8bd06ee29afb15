import { sql } from "kysely";
import type { Database, Queries } from "./pool.ts";

/** The UTC day by the deadline clock, `YYYY-MM-DD`. */
export const TODAY = sql<string>`to_char(service_now() at time zone 'UTC', 'YYYY-MM-DD')`;

/** The database's clock, which measures leases. Also shows that the database answers. */
export async function readLeaseTime(db: Database): Promise<Date> {
  const { rows } = await sql<{ now: Date }>`select now() as now`.execute(db);
  const [row] = rows;
  if (!row) throw new Error("the store did not say what time it is");
  return row.now;
}

/** For statements: `ms` from now on that clock. */
export function leaseEnd(ms: number) {
  return sql<Date>`now() + make_interval(secs => ${ms / 1000})`;
}

/** The deadline clock. */
export async function readDeadlineTime(db: Queries): Promise<Date> {
  const found = await sql<{ now: Date }>`select service_now() as now`.execute(db);
  return found.rows[0]?.now ?? new Date();
}

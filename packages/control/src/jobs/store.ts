/** SQL of the job queue's tables, beyond what the library does. */
import { sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import { JOB_STATES } from "./kinds.ts";

/** A schema of its own: no dump of rows has it, since sweeps add all work again from the rows that have it. */
export const JOBS_SCHEMA = "vivarium_jobs";

export async function countWaiting(db: Queries, kind: string): Promise<number> {
  const { rows } = await sql<{ count: number }>`
    select count(*)::int as count from ${sql.table(`${JOBS_SCHEMA}.job`)}
    where name = ${kind} and state in ('created', 'retry')`.execute(db);
  return rows[0]?.count ?? 0;
}

export async function countByKindAndState(
  db: Queries,
): Promise<{ kind: string; state: string; count: number }[]> {
  const { rows } = await sql<{ kind: string; state: string; count: number }>`
    select name as kind, state::text as state, count(*)::int as count from ${sql.table(`${JOBS_SCHEMA}.job`)}
    where state::text = any(${JOB_STATES}) and name not like '\\_\\_%'
    group by 1, 2 order by 1, 2`.execute(db);
  return rows;
}

/** The catalog of a running service, for what no endpoint sets: ceilings. */
import { join } from "node:path";
import pg from "pg";
import type { ServiceFacts } from "./service.ts";

export async function query(facts: ServiceFacts, statement: string): Promise<Record<string, unknown>[]> {
  const host = encodeURIComponent(join(facts.dataDir, "run/postgres"));
  const client = new pg.Client({ connectionString: `postgres://vivarium@/vivarium?host=${host}` });
  await client.connect();
  try {
    return (await client.query(statement)).rows;
  } finally {
    await client.end();
  }
}

/** Lets every organisation run so many sessions at once. */
export async function raiseCeiling(facts: ServiceFacts, sessions: number): Promise<void> {
  await query(facts, `update orgs set concurrent_sessions = ${sessions}`);
}

/** Moves the clock of deadlines and of days to so many seconds before the next midnight UTC; behind it, if negative. */
export async function moveToMidnight(facts: ServiceFacts, secondsBefore: number): Promise<void> {
  const [row] = await query(
    facts,
    `select extract(epoch from date_trunc('day', service_now(), 'UTC') + interval '1 day' - now()) as seconds`,
  );
  const ahead = Number(row?.seconds) - secondsBefore;
  await query(
    facts,
    `create or replace function service_now() returns timestamptz language sql stable as
      'select now() + make_interval(secs => ${ahead})'`,
  );
}

/** Queries the database of a running service, for settings without an endpoint. */
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

/** Sets how many sessions each organisation may run at once. */
export async function raiseCeiling(facts: ServiceFacts, sessions: number): Promise<void> {
  await query(facts, `update orgs set concurrent_sessions = ${sessions}`);
}

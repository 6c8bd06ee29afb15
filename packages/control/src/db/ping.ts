import { sql } from "kysely";
import type { Database } from "./pool.ts";

/** Asks the store for a sign of life. */
export async function ping(db: Database): Promise<void> {
  await sql`select 1`.execute(db);
}

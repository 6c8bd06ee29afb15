import { sql } from "kysely";
import type { Database, Queries } from "./pool.ts";

/** Asks the store for a sign of life: the time that leases are measured by. */
export async function storeNow(db: Database): Promise<Date> {
  const { rows } = await sql<{ now: Date }>`select now() as now`.execute(db);
  const [row] = rows;
  if (!row) throw new Error("the store did not say what time it is");
  return row.now;
}

/** The instant that deadlines are measured by. */
export async function deadlineNow(db: Queries): Promise<Date> {
  const found = await sql<{ now: Date }>`select service_now() as now`.execute(db);
  return found.rows[0]?.now ?? new Date();
}

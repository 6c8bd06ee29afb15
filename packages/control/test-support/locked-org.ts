/** Changes rows while a request waits for the lock on its organisation, as another process with the lock does. */
import type { PoolClient } from "pg";
import { type Answer, type Control, eventually } from "./control.ts";

/**
 * Begins a request while the organisations are locked, makes the change once the request waits for the lock, and releases it.
 * A request that is answered without the lock does not hold the change up.
 */
export async function whileOrgIsLocked(
  { sql }: Control,
  begin: () => Promise<Answer>,
  change: (sql: Pick<PoolClient, "query">) => Promise<unknown>,
): Promise<Answer> {
  const other = await sql.connect();
  try {
    await other.query("begin");
    await other.query("select from orgs for update");
    let isAnswered = false;
    const answer = begin().finally(() => {
      isAnswered = true;
    });
    await eventually(async () => {
      const { rowCount } = await other.query(
        "select from pg_locks where not granted and pg_backend_pid() = any(pg_blocking_pids(pid))",
      );
      if (!isAnswered && rowCount === 0) throw new Error("the request neither waits nor is answered");
    });
    await change(other);
    await other.query("commit");
    return await answer;
  } finally {
    await other.query("rollback");
    other.release();
  }
}

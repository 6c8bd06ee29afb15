/** SQL that reads artifacts for those who wait for a capture. */
import { sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import { IS_TEARDOWN_OVER } from "./columns.ts";

/** Ended sessions among these whose machine is still needed to capture from. */
export async function findCaptured(db: Queries, sessionIds: readonly string[]): Promise<Set<string>> {
  if (sessionIds.length === 0) return new Set();
  const rows = await db
    .selectFrom("artifacts")
    .select("session_id")
    .where("session_id", "in", sessionIds)
    .where("cause", "=", "teardown")
    .where("state", "=", "pending")
    .where(sql<boolean>`not ${IS_TEARDOWN_OVER}`)
    .execute();
  return new Set(rows.map(({ session_id }) => session_id));
}

/** Bytes of the files of all organisations' artifacts, before compression. */
export async function countArtifactBytes(db: Queries): Promise<number> {
  const { sum } = await db
    .selectFrom("artifact_files")
    .select(sql<number>`coalesce(sum(size_bytes), 0)::bigint`.as("sum"))
    .executeTakeFirstOrThrow();
  return sum;
}

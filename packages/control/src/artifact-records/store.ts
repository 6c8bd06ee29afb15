/** SQL that reads artifacts for those who wait for a capture. */
import { LIMITS } from "@vivarium/contract/api";
import { sql } from "kysely";
import type { Queries } from "../db/pool.ts";

/** Whether the capture of a session's end is over: it lasts for a minute at most, whatever its row says. */
export const IS_TEARDOWN_OVER = sql<boolean>`captured_at <= service_now() - make_interval(secs => ${LIMITS.artifactTeardownMs / 1000})`;

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

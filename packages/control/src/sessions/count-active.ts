import type { Queries } from "../db/pool.ts";
import { countActive, countPaused } from "./store.ts";

/** Sessions that hold a slot under a ceiling: of the organisation, and of them those made with one key. */
export async function countActiveSessions(
  db: Queries,
  { orgId, keyId }: { orgId: string; keyId: string },
): Promise<{ org: number; key: number }> {
  return await countActive(db, orgId, keyId);
}

/** Paused sessions with a copy on their node: they wake at once. */
export async function countPausedSessions(db: Queries, orgId: string): Promise<number> {
  return await countPaused(db, orgId);
}

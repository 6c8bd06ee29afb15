import type { Queries } from "../db/pool.ts";
import { countActive } from "./store.ts";

/** Sessions that hold a slot under a ceiling: of the organisation, and of them those made with one key. */
export async function countActiveSessions(
  db: Queries,
  { orgId, keyId }: { orgId: string; keyId: string },
): Promise<{ org: number; key: number }> {
  return await countActive(db, orgId, keyId);
}

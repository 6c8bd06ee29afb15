import type { Queries } from "../db/pool.ts";
import { setDestroyAfter } from "./store.ts";

/** The sweep destroys the session after `ms`, unless somebody puts that off again: an owner's sign of life. */
export async function leaseSession(db: Queries, sessionId: string, ms: number): Promise<void> {
  await setDestroyAfter(db, sessionId, ms);
}

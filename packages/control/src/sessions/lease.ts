import type { RawBuilder } from "kysely";
import type { Queries } from "../db/pool.ts";
import { clearDestroyAfter, extendDestroyAfter, leaseFromNow, setDestroyAfter } from "./leases-store.ts";

/** The lease that a session is made with. */
export function firstLease(ms: number): RawBuilder<Date> {
  return leaseFromNow(ms);
}

/** The sweep destroys the session after `ms`, unless somebody puts that off again: an owner's sign of life. */
export async function leaseSession(db: Queries, sessionId: string, ms: number): Promise<void> {
  await setDestroyAfter(db, sessionId, ms);
}

/** The same, for an owner beside others: it brings nothing forward. Tells the instant, by which it is given up. */
export async function extendLease(db: Queries, sessionId: string, ms: number): Promise<Date | undefined> {
  return await extendDestroyAfter(db, sessionId, ms);
}

/** The sweep leaves the session alone, unless somebody wrote another instant since. */
export async function giveUpLease(db: Queries, sessionId: string, lease: Date): Promise<void> {
  await clearDestroyAfter(db, sessionId, lease);
}

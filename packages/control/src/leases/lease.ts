import type { RawBuilder } from "kysely";
import type { Queries } from "../db/pool.ts";
import {
  type Extended,
  extendDestroyAfter,
  leaseFromNow,
  setDestroyAfter,
  takeBackExtension,
} from "./store.ts";

export type Lease = Extended;

/** The lease that a session is made with. */
export function firstLease(ms: number): RawBuilder<Date> {
  return leaseFromNow(ms);
}

/** The sweep destroys the session after `ms`, unless somebody puts that off again: an owner's sign of life. */
export async function leaseSession(db: Queries, sessionId: string, ms: number): Promise<void> {
  await setDestroyAfter(db, sessionId, ms);
}

/** The same, for an owner beside others: it brings nothing forward. Tells what to give it up by. */
export async function extendLease(db: Queries, sessionId: string, ms: number): Promise<Lease | undefined> {
  return await extendDestroyAfter(db, sessionId, ms);
}

/** The session is as it was before, unless somebody wrote another instant since. */
export async function giveUpLease(db: Queries, sessionId: string, lease: Lease): Promise<void> {
  await takeBackExtension(db, sessionId, lease);
}

import type { Queries } from "../db/pool.ts";
import { findKeyCeiling, findOrg, lockOrg } from "./store.ts";

export interface Org {
  id: string;
  name: string;
  createdAt: Date;
  isSuspended: boolean;
  /** Ceiling of sessions that are creating or live. */
  concurrentSessions: number;
}

export async function getOrg(db: Queries, orgId: string): Promise<Org> {
  const row = await findOrg(db, orgId);
  return {
    id: row.id,
    name: row.name,
    createdAt: row.created_at,
    isSuspended: row.suspended,
    concurrentSessions: row.concurrent_sessions,
  };
}

/** Takes a turn: until the transaction ends, nobody else counts or adds sessions of this organisation. */
export async function takeOrgTurn(
  tx: Queries,
  orgId: string,
): Promise<{ concurrentSessions: number; isEgressCapped: boolean }> {
  return await lockOrg(tx, orgId);
}

/** A key's own ceiling of sessions; null: it has none, or is gone. */
export async function keyCeiling(db: Queries, keyId: string): Promise<number | null> {
  return await findKeyCeiling(db, keyId);
}

/**
 * Leases of provisional sessions: children of a fork and starts from a checkpoint, while their caller waits for them to
 * become live. If the process that makes them dies, nobody waits any more, and the sweep destroys them.
 */
import { type EndReason, LIMITS } from "@vivarium/contract/api";
import { sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import { leaseEnd } from "../db/time.ts";
import { FIRST_STATE } from "../sessions/state.ts";
import { leaseFromNow } from "./lease.ts";

/** How long the lease lasts without renewal. */
export const PROVISIONAL_LEASE_MS = 5_000;

/** Lease columns of a new row. The claim keeps the sweep from provisioning a session that no caller waits for. */
export function provisionalLeaseColumns() {
  return {
    destroy_after: leaseFromNow(PROVISIONAL_LEASE_MS),
    provision_claimed_until: leaseFromNow(LIMITS.provisionMs),
  };
}

/** Renews leases. A lapsed lease is not renewed: the sweep may be destroying the session already. */
export async function renewProvisionalLeases(db: Queries, ids: readonly string[]): Promise<void> {
  await db
    .updateTable("sessions")
    .set({ destroy_after: leaseEnd(PROVISIONAL_LEASE_MS) })
    .where("id", "in", ids)
    .where("state", "=", FIRST_STATE)
    .where("destroy_after", ">", sql<Date>`clock_timestamp()`)
    .execute();
}

/** Ends the leases of sessions that become live. False if a lease among them had lapsed. */
export async function endProvisionalLeases(db: Queries, ids: readonly string[]): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable("sessions")
    .set({ destroy_after: null })
    .where("id", "in", ids)
    .where("destroy_after", ">", sql<Date>`clock_timestamp()`)
    .executeTakeFirst();
  return numUpdatedRows === BigInt(ids.length);
}

const NEVER_LIVE: EndReason = "error";

/**
 * Deletes the history of discarded sessions, once the node has nothing of them. A session that its caller destroyed
 * keeps its history.
 */
export async function deleteProvisionalHistory(db: Queries, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return;
  await db
    .deleteFrom("sessions")
    .where("id", "in", ids)
    .where("incarnation", "=", 0)
    .where("end_reason", "=", NEVER_LIVE)
    .where("machine_released_at", "is not", null)
    .execute();
}

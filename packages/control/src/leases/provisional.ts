/** Leases of sessions that are being made for a caller who waits for them. */
import { type EndReason, LIMITS } from "@vivarium/contract/api";
import { sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import { FIRST_STATE } from "../sessions/state.ts";
import { leaseFromNow } from "./lease.ts";

/** How long such a lease lasts without renewal. */
export const PROVISIONAL_LEASE_MS = 5_000;

/** For the insert. The claim keeps the sweep from provisioning a session that nobody may want any more. */
export function provisionalLeaseColumns() {
  return {
    destroy_after: leaseFromNow(PROVISIONAL_LEASE_MS),
    provision_claimed_until: leaseFromNow(LIMITS.provisionMs),
  };
}

/** Renews leases of sessions that are being made. One that ran out stays so: the sweep may be at work already. */
export async function renewProvisionalLeases(db: Queries, ids: readonly string[]): Promise<void> {
  await db
    .updateTable("sessions")
    .set({ destroy_after: after(PROVISIONAL_LEASE_MS) })
    .where("id", "in", ids)
    .where("state", "=", FIRST_STATE)
    .where("destroy_after", ">", sql<Date>`clock_timestamp()`)
    .execute();
}

/** The sessions belong to themselves from now on; false when a lease among them had run out. */
export async function endProvisionalLeases(db: Queries, ids: readonly string[]): Promise<boolean> {
  const rows = await db
    .updateTable("sessions")
    .set({ destroy_after: null })
    .where("id", "in", ids)
    .where("destroy_after", ">", sql<Date>`clock_timestamp()`)
    .returning("id")
    .execute();
  return rows.length === ids.length;
}

const UNBORN: EndReason = "error";

/**
 * Removes the history of sessions that came to nothing before they were handed out, once nothing of them is on a node.
 * One that its caller destroyed keeps its history.
 */
export async function deleteProvisionalHistory(db: Queries, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return;
  await db
    .deleteFrom("sessions")
    .where("id", "in", ids)
    .where("incarnation", "=", 0)
    .where("end_reason", "=", UNBORN)
    .where("machine_released_at", "is not", null)
    .execute();
}

function after(ms: number) {
  return sql<Date>`now() + make_interval(secs => ${ms / 1000})`;
}

/** Leases of sessions that are being made for a caller who waits for them. */
import type { EndReason } from "@vivarium/contract/api";
import { sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import { FIRST_STATE } from "../sessions/state.ts";

/** Renews leases of sessions that are being made. One that ran out stays so: the sweep may be at work already. */
export async function renewLeases(db: Queries, ids: readonly string[], leaseMs: number): Promise<void> {
  await db
    .updateTable("sessions")
    .set({ destroy_after: after(leaseMs) })
    .where("id", "in", ids)
    .where("state", "=", FIRST_STATE)
    .where("destroy_after", ">", sql<Date>`clock_timestamp()`)
    .execute();
}

/** The sessions belong to themselves from now on; false when a lease among them had run out. */
export async function endLeases(db: Queries, ids: readonly string[]): Promise<boolean> {
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
export async function forgetUnborn(db: Queries, ids: readonly string[]): Promise<void> {
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

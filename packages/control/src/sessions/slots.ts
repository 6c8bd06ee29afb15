/** Checks the ceilings on sessions that are being created or live, and the organisation's daily egress cap. */

import type { Principal } from "../access/principal.ts";
import { lockOrg } from "../access/store.ts";
import type { Queries } from "../db/pool.ts";
import { ApiError } from "../errors/api-error.ts";
import { countActiveSessions } from "./store.ts";

/**
 * Checks ceilings and cap for `count` more sessions. Locks the organisation's row, so that no other transaction counts
 * or adds its sessions until this one ends.
 */
export async function takeSlots(deps: CeilingDeps, tx: Queries, owner: SlotOwner, count = 1): Promise<void> {
  const { ownCeiling, isEgressCapped } = await lockOrg(tx, owner.orgId);
  if (isEgressCapped) throw orgCapped();
  await checkCeilings(deps, tx, { owner, ownCeiling, count });
}

export interface CeilingDeps {
  /** How many sessions an organisation may have creating or live at once, unless it has a ceiling of its own. */
  sessionCeiling: number;
}

type SlotOwner = Pick<Principal, "orgId" | "keyId" | "concurrentSessions"> & {
  /** Set if the caller's key is restricted to one project. */
  scopedProjectId?: string | null;
};

export async function checkCeilings(
  { sessionCeiling }: CeilingDeps,
  tx: Queries,
  { owner, ownCeiling, count = 1 }: { owner: SlotOwner; ownCeiling: number | null; count?: number },
): Promise<void> {
  const active = await countActiveSessions(tx, owner);
  const orgCeiling = ownCeiling ?? sessionCeiling;
  if (active.org + count > orgCeiling) {
    const has = owner.scopedProjectId ? "has no room for it" : `has ${active.org}`;
    const raise = ownCeiling === null ? ", or ask the operator for more (VIV_CONCURRENT_SESSIONS)" : "";
    throw new ApiError(
      "account_concurrency_exceeded",
      `your organisation may have ${orgCeiling} sessions creating or live at once and ${has}${wayOut(count)}${raise}`,
    );
  }
  const keyCeiling = owner.concurrentSessions;
  if (keyCeiling !== null && active.key + count > keyCeiling) {
    throw new ApiError(
      "key_concurrency_exceeded",
      `a session counts under the API key that made it, whoever wakes it: that key may have ${keyCeiling} sessions creating or live at once and has ${active.key}${wayOut(count)}`,
    );
  }
}

function wayOut(count: number): string {
  const asked = count === 1 ? "" : `, and this asks for ${count} more`;
  return `${asked}; pause or destroy one first`;
}

export function orgCapped(): ApiError {
  return new ApiError(
    "egress_capped",
    "the sessions of your organisation have sent as much as they may today; they run again from 00:00 UTC, or once its cap is raised",
  );
}

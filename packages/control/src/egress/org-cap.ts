/** How much all sessions of an organisation may send in a day. */
import type { OrgEgressCap } from "@vivarium/contract/api";
import type { Log } from "@vivarium/kit/log";
import type { Principal } from "../access/principal.ts";
import { lockOrg } from "../access/store.ts";
import type { Database, Queries } from "../db/pool.ts";
import { ApiError } from "../errors/api-error.ts";
import { invalidField } from "../http/validation.ts";
import { findOrgCap, judgeOrg, orgUsage, saveOrgCap } from "./org-cap-store.ts";

/** What the operator set, in bytes of a UTC day; 0: none. */
export interface EgressCaps {
  /** Cap of a session whose create names none. */
  sessionBytes: number;
  /** Cap of an organisation that chose none. */
  orgBytes: number;
  /** No organisation sends more, whatever it chose. */
  orgMaxBytes: number;
}

export interface OrgCapDeps {
  db: Database;
  egressCaps: EgressCaps;
}

export async function getOrgCap(deps: OrgCapDeps, principal: Principal): Promise<OrgEgressCap> {
  return await readCap(deps.db, deps.egressCaps, principal.orgId);
}

/**
 * Null goes back to the operator's default. Keys have no roles: a key of the whole organisation does what its owner
 * may, and a key that is bound to a project does not.
 */
export async function setOrgCap(
  { db, egressCaps }: OrgCapDeps,
  principal: Principal,
  capBytes: number | null,
): Promise<OrgEgressCap> {
  if (principal.scopedProjectId !== null) {
    throw new ApiError(
      "forbidden",
      "this API key is bound to a project; the organisation's cap is set with a key of the whole organisation",
    );
  }
  checkBound(egressCaps, capBytes);
  return await db.transaction().execute(async (tx) => {
    await lockOrg(tx, principal.orgId);
    await saveOrgCap(tx, principal.orgId, capBytes);
    // What it refuses, or lets start again, is decided before the call answers.
    await judgeOrg(tx, egressCaps, principal.orgId);
    return await readCap(tx, egressCaps, principal.orgId);
  });
}

/** Marks an organisation that sent its day's bytes, or takes the mark away. */
export async function markOrg(
  { db, egressCaps, log }: OrgCapDeps & { log: Log },
  orgId: string,
): Promise<void> {
  const isMarked = await db.transaction().execute(async (tx) => {
    await lockOrg(tx, orgId);
    return await judgeOrg(tx, egressCaps, orgId);
  });
  if (isMarked)
    log.info({ event: "egress.org_capped", org_id: orgId }, "an organisation reached its egress cap");
}

function checkBound({ orgMaxBytes }: EgressCaps, capBytes: number | null): void {
  if (capBytes === null || orgMaxBytes === 0) return;
  if (capBytes > 0 && capBytes <= orgMaxBytes) return;
  throw invalidField(
    "cap_bytes",
    `must be from 1 to ${orgMaxBytes}, the operator's bound, or null`,
    capBytes,
  );
}

async function readCap(db: Queries, caps: EgressCaps, orgId: string): Promise<OrgEgressCap> {
  const { bytes, isOwn, usualBytes } = await findOrgCap(db, caps, orgId);
  const today = await orgUsage(db, orgId);
  return {
    cap_bytes: bytes,
    override: isOwn,
    default_cap_bytes: usualBytes,
    today_bytes: today.bytes,
    date: today.date,
  };
}

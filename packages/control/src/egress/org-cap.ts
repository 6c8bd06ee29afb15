/** The daily egress cap of all sessions of an organisation. */
import type { OrgEgressCap } from "@vivarium/contract/api";
import type { Caller } from "../access/caller.ts";
import type { Principal } from "../access/principal.ts";
import { lockOrg } from "../access/store.ts";
import { appendEntry } from "../audit/append.ts";
import { ApiError } from "../errors/api-error.ts";
import { invalidField } from "../http/validation.ts";
import type { EgressDeps } from "./deps.ts";
import { readOrgCap, saveOrgCap, updateOrgMark } from "./org-cap-store.ts";

/** The operator's settings, in bytes of a UTC day; 0: no cap. */
export interface EgressCaps {
  /** Cap of a session whose create sets none. */
  sessionBytes: number;
  /** Cap of an organisation that has not set one. */
  orgBytes: number;
  /** Upper bound of every organisation's cap. */
  orgMaxBytes: number;
}

type OrgCapDeps = Pick<EgressDeps, "db" | "egressCaps">;
type SetDeps = OrgCapDeps & Pick<EgressDeps, "auditKey">;

/**
 * Sets the daily cap in bytes; 0: no cap, null: the operator's default. Keys have no roles, so every key that is not
 * bound to a project may set it.
 */
export async function setOrgCap(
  deps: SetDeps,
  principal: Principal,
  { capBytes, by }: { capBytes: number | null; by: Caller },
): Promise<OrgEgressCap> {
  if (principal.scopedProjectId !== null) {
    throw new ApiError(
      "forbidden",
      "this API key is bound to a project; the organisation's cap is set with a key of the whole organisation",
    );
  }
  const { db, egressCaps } = deps;
  checkBound(egressCaps, capBytes);
  return await db.transaction().execute(async (tx) => {
    await lockOrg(tx, principal.orgId);
    await saveOrgCap(tx, principal.orgId, capBytes);
    // Updated in the same transaction, so that the new cap refuses or admits sessions from now on.
    await updateOrgMark(tx, egressCaps, principal.orgId);
    const meta = { egress_cap_bytes: capBytes };
    await appendEntry(deps, tx, { by, action: "org.set_egress_cap", target: principal.orgId, meta });
    return await readOrgCap(tx, egressCaps, principal.orgId);
  });
}

/** Marks an organisation whose sessions reached its cap today, or removes a mark that no longer applies. */
export async function markOrg(
  { db, egressCaps, log }: OrgCapDeps & Pick<EgressDeps, "log">,
  orgId: string,
): Promise<void> {
  const isMarked = await db.transaction().execute(async (tx) => {
    await lockOrg(tx, orgId);
    return await updateOrgMark(tx, egressCaps, orgId);
  });
  if (isMarked)
    log.info({ event: "egress.org_capped", org_id: orgId }, "an organisation reached its egress cap");
}

function checkBound({ orgMaxBytes }: EgressCaps, capBytes: number | null): void {
  if (capBytes === null || orgMaxBytes === 0) return;
  if (capBytes > 0 && capBytes <= orgMaxBytes) return;
  const range = `must be from 1 to ${orgMaxBytes}, the operator's bound, or null`;
  throw invalidField("cap_bytes", range, capBytes);
}

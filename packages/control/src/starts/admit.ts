/** Lets a new session in: name, ceilings, capacity and the insert, in one transaction that holds the org's row. */
import type { Size } from "@vivarium/contract/api";
import type { NodeInfo } from "@vivarium/contract/node";
import { randomId } from "@vivarium/kit/id";
import { takeOrgTurn } from "../access/orgs.ts";
import type { Principal } from "../access/principal.ts";
import type { Queries } from "../db/pool.ts";
import type { EgressCaps } from "../egress/org-cap.ts";
import { ApiError } from "../errors/api-error.ts";
import { baselinesFor } from "../fleet/baselines.ts";
import type { NodeState } from "../fleet/node-state.ts";
import { leaseFromNow } from "../leases/store.ts";
import { countActiveSessions } from "../sessions/count-active.ts";
import { FIRST_STATE } from "../sessions/state.ts";
import { insertSession, isNameTaken, type NewSession, type SessionRow } from "../sessions/store.ts";

export const BASE_TEMPLATE = "base";
/** How long a claim on provisioning lasts without renewal. */
export const PROVISION_LEASE_MS = 5_000;

export type SessionSettings = Omit<NewSession, "id" | "org_id" | "key_id" | "state" | "size"> & {
  size: Size;
};

export async function admitSession(
  { node, egressCaps }: { node: NodeState; egressCaps: EgressCaps },
  tx: Queries,
  principal: Principal,
  settings: SessionSettings,
): Promise<SessionRow> {
  // Asked before the organisation's row is taken: a node that does not answer holds up nobody else's create.
  const info = await node.current();
  const org = await takeOrgTurn(tx, principal.orgId);
  const { name, project_id: projectId = null } = settings;
  if (name && (await isNameTaken(tx, principal.orgId, projectId, name))) throw nameTaken(name);
  if (org.isEgressCapped) throw orgCapped();
  await checkCeilings(tx, principal, org.concurrentSessions);
  checkSize(info, settings);
  checkDisk(info);
  // Told 0, a session has no cap, whatever is usual.
  const capBytes = (settings.egress_cap_bytes ?? egressCaps.sessionBytes) || null;
  const row = await insertSession(tx, {
    provision_claimed_until: leaseFromNow(PROVISION_LEASE_MS),
    ...settings,
    egress_cap_bytes: capBytes,
    // A first machine has sent nothing yet.
    egress_limit_bytes: capBytes,
    id: randomId(),
    org_id: principal.orgId,
    key_id: principal.keyId,
    state: FIRST_STATE,
  });
  if (row === "name_taken") throw nameTaken(settings.name ?? "");
  return row;
}

/** Volumes do not exist in this version. */
export function checkReferences({ volume_id: volumeId }: { volume_id?: string | null }): void {
  if (volumeId != null)
    throw new ApiError("not_found", "volume_id: no volume of your organisation has this id");
}

/**
 * Room under the ceilings and the day's cap for `count` more sessions. Until the transaction ends nobody else counts or
 * adds sessions of the organisation.
 */
export async function takeSlots(tx: Queries, owner: SlotOwner, count = 1): Promise<void> {
  const { concurrentSessions, isEgressCapped } = await takeOrgTurn(tx, owner.orgId);
  if (isEgressCapped) throw orgCapped();
  await checkCeilings(tx, owner, concurrentSessions, count);
}

type SlotOwner = Pick<Principal, "orgId" | "keyId" | "concurrentSessions"> & {
  /** Set where the caller may know of this project alone. */
  scopedProjectId?: string | null;
};

async function checkCeilings(tx: Queries, owner: SlotOwner, orgCeiling: number, count = 1): Promise<void> {
  const active = await countActiveSessions(tx, owner);
  if (active.org + count > orgCeiling) {
    const has = owner.scopedProjectId ? "has no room for it" : `has ${active.org}`;
    throw new ApiError(
      "account_concurrency_exceeded",
      `your organisation may have ${orgCeiling} sessions creating or live at once and ${has}${wayOut(count)}`,
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

/**
 * A node that was never reached is not held against a size: provisioning waits for it. What is loaded from a snapshot
 * needs no baseline.
 */
function checkSize(info: NodeInfo | undefined, settings: SessionSettings): void {
  if (!info || settings.origin_snapshot_id) return;
  const sizes = new Set(baselinesFor(info, settings.template).map(({ size }) => size));
  if (sizes.has(settings.size)) return;
  const available = [...sizes].join(", ");
  throw new ApiError(
    "size_unavailable",
    `size: ${settings.size} can be started on no node; available: ${available || "none yet"}`,
  );
}

/** What the gate's last word does not tell, as a disk that fills up meanwhile, is refused by the node itself. */
function checkDisk(info: NodeInfo | undefined): void {
  if (info?.has_disk_room === false)
    throw new ApiError("node_disk_pressure", "the node has too little free disk for another session");
}

function orgCapped(): ApiError {
  return new ApiError(
    "egress_capped",
    "the sessions of your organisation have sent as much as they may today; they run again from 00:00 UTC, or once its cap is raised",
  );
}

function nameTaken(name: string): ApiError {
  return new ApiError(
    "conflict",
    `name: another session of the project is called ${JSON.stringify(name)}; destroy it or choose another name`,
  );
}

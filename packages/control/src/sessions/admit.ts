/** Lets a new session in: name, ceilings, capacity and the insert, in one transaction that holds the org's row. */
import type { Size } from "@vivarium/contract/api";
import { randomId } from "@vivarium/kit/id";
import type { Insertable } from "kysely";
import { takeOrgTurn } from "../access/orgs.ts";
import type { Principal } from "../access/principal.ts";
import type { Queries } from "../db/pool.ts";
import type { SessionTable } from "../db/tables.ts";
import type { NodeState } from "../fleet/node-state.ts";
import { ApiError } from "../http/api-error.ts";
import { countActiveSessions } from "./count-active.ts";
import { FIRST_STATE } from "./state.ts";
import { insertSession, isNameTaken, type SessionRow } from "./store.ts";

export const BASE_TEMPLATE = "base";
/** How long a claim on provisioning lasts without renewal. */
export const PROVISION_LEASE_MS = 5_000;

export type SessionSettings = Omit<
  Insertable<SessionTable>,
  "id" | "org_id" | "key_id" | "state" | "size" | "provision_claimed_until"
> & { size: Size };

export async function admitSession(
  { node }: { node: NodeState },
  tx: Queries,
  principal: Principal,
  settings: SessionSettings,
): Promise<SessionRow> {
  const org = await takeOrgTurn(tx, principal.orgId);
  if (settings.name && (await isNameTaken(tx, principal.orgId, settings.name)))
    throw nameTaken(settings.name);
  await checkCeilings(tx, principal, org.concurrentSessions);
  await checkSize(node, settings);
  const row = await insertSession(tx, {
    ...settings,
    id: randomId(),
    org_id: principal.orgId,
    key_id: principal.keyId,
    state: FIRST_STATE,
    provision_claimed_until: new Date(Date.now() + PROVISION_LEASE_MS),
  });
  if (row === "name_taken") throw nameTaken(settings.name ?? "");
  return row;
}

/** Templates, volumes and checkpoints other than the base template do not exist in this version. */
export function checkReferences(refs: {
  volume_id?: string | null;
  from_checkpoint?: string | null;
  template?: string | null;
}): void {
  if (refs.volume_id != null)
    throw new ApiError("not_found", "volume_id: no volume of your organisation has this id");
  if (refs.from_checkpoint != null) {
    throw new ApiError("not_found", "from_checkpoint: no checkpoint of your organisation has this id");
  }
  if (refs.template && refs.template !== BASE_TEMPLATE) {
    throw new ApiError("not_found", `template: no such template; this version has ${BASE_TEMPLATE} only`);
  }
}

async function checkCeilings(tx: Queries, principal: Principal, orgCeiling: number): Promise<void> {
  const active = await countActiveSessions(tx, principal);
  if (active.org >= orgCeiling) {
    throw new ApiError(
      "account_concurrency_exceeded",
      `your organisation may have ${orgCeiling} sessions creating or live at once and has ${active.org}; destroy one first`,
    );
  }
  const keyCeiling = principal.concurrentSessions;
  if (keyCeiling !== null && active.key >= keyCeiling) {
    throw new ApiError(
      "key_concurrency_exceeded",
      `this API key may have ${keyCeiling} sessions creating or live at once and has ${active.key}; destroy one first`,
    );
  }
}

/** A node that was never reached is not held against a size: provisioning waits for it. */
async function checkSize(node: NodeState, { size, template }: SessionSettings): Promise<void> {
  const info = await node.current();
  if (!info || info.baselines.some((baseline) => baseline.template === template && baseline.size === size))
    return;
  const sizes = info.baselines
    .filter((baseline) => baseline.template === template)
    .map((baseline) => baseline.size);
  throw new ApiError(
    "size_unavailable",
    `size: ${size} can be started on no node; available: ${sizes.join(", ") || "none yet"}`,
  );
}

function nameTaken(name: string): ApiError {
  return new ApiError(
    "conflict",
    `name: another session of your organisation is called ${JSON.stringify(name)}; destroy it or choose another name`,
  );
}

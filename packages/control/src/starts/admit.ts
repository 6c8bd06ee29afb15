/** Admits a new session: checks name, ceilings and capacity, and inserts it, while the organisation's row is locked. */
import type { Size } from "@vivarium/contract/api";
import type { NodeInfo } from "@vivarium/contract/node";
import { randomId } from "@vivarium/kit/id";
import type { Caller } from "../access/caller.ts";
import type { Principal } from "../access/principal.ts";
import { requireProject } from "../access/resolve-project.ts";
import { lockOrg } from "../access/store.ts";
import { type AuditDeps, appendEntry } from "../audit/append.ts";
import { authorityColumns } from "../connections/authority.ts";
import { insertAtCreate } from "../connections/bind.ts";
import type { NewConnection } from "../connections/check.ts";
import type { Queries } from "../db/pool.ts";
import type { EgressCaps } from "../egress/org-cap.ts";
import { ApiError } from "../errors/api-error.ts";
import { baselinesFor } from "../fleet/baselines.ts";
import type { NodeState } from "../fleet/node-state.ts";
import { leaseFromNow } from "../leases/lease.ts";
import { PROVISION_LEASE_MS } from "../leases/provision-claim.ts";
import type { Keyring } from "../secrets/keyring.ts";
import { stateKeyOfNew } from "../secrets/state-key.ts";
import { saveSealedValues, sealVariables, type Variables } from "../secrets/variables.ts";
import { type CeilingDeps, checkCeilings, orgCapped } from "../sessions/slots.ts";
import type { StartGate } from "../sessions/start-gate.ts";
import { FIRST_STATE } from "../sessions/state.ts";
import { isNameTaken, type SessionRow } from "../sessions/store.ts";
import { attachVolume } from "../volumes/attach.ts";
import { insertSession, type NewSession } from "./store.ts";

/** Columns that this file fills. */
type Filled =
  | "id"
  | "org_id"
  | "key_id"
  | "state"
  | "size"
  | "env"
  | "kek_id"
  | "data_key"
  | "state_key"
  | "bound_hosts"
  | "ca_certificate"
  | "ca_key";
type Chosen = Omit<NewSession, Filled>;

export type SessionSettings = Chosen &
  Variables & {
    size: Size;
    /** Connections of the request, checked against the policy of the session. */
    connections?: readonly NewConnection[];
    /** The state key of the checkpoint or template that the session starts from. */
    stateKey?: Buffer | undefined;
  };

interface AdmitDeps extends AuditDeps, CeilingDeps {
  node: NodeState;
  egressCaps: EgressCaps;
  startGate: StartGate;
  keyring: Keyring;
}

export async function admitSession(
  deps: AdmitDeps,
  tx: Queries,
  principal: Principal,
  {
    settings: { env, secrets, connections = [], stateKey, ...settings },
    by,
  }: { settings: SessionSettings; by: Caller },
): Promise<SessionRow> {
  const { node, egressCaps, startGate, keyring } = deps;
  startGate.requireOpen();
  // Before the organisation's row is locked, so that a node which does not answer delays no other create.
  const info = await node.current();
  const org = await lockOrg(tx, principal.orgId);
  const { name, project_id: projectId = null } = settings;
  await requireProject(tx, principal, projectId);
  if (name && (await isNameTaken(tx, principal.orgId, projectId, name))) throw nameTaken(name);
  if (org.isEgressCapped) throw orgCapped();
  await checkCeilings(deps, tx, { owner: principal, ownCeiling: org.ownCeiling });
  checkSize(info, settings);
  checkDisk(info);
  // `0` means no cap, and overrides the operator's default.
  const capBytes = (settings.egress_cap_bytes ?? egressCaps.sessionBytes) || null;
  const owner = { org_id: principal.orgId, id: randomId() };
  // Last, because errors of the request come before a key that the server lacks.
  const hasConnections = connections.length > 0;
  // An origin may hand out the credential of a Connection in a form that its guard does not know.
  const mayHold = settings.may_hold_secrets || Object.keys(secrets).length > 0 || hasConnections;
  const { columns, values, key } = sealVariables(
    keyring,
    owner,
    { env, secrets },
    { hasConnections, stateKey: mayHold || stateKey ? stateKeyOfNew(keyring, stateKey) : undefined },
  );
  const hosts = connections.map(({ host }) => host);
  const row = await insertSession(tx, {
    provision_claimed_until: leaseFromNow(PROVISION_LEASE_MS),
    ...settings,
    ...columns,
    ...(key && hasConnections && (await authorityColumns(key, owner, hosts))),
    ...owner,
    may_hold_secrets: mayHold,
    egress_cap_bytes: capBytes,
    // The first machine has sent nothing yet, so its limit is the whole cap.
    egress_limit_bytes: capBytes,
    key_id: principal.keyId,
    state: FIRST_STATE,
  });
  if (row === "name_taken") throw nameTaken(settings.name ?? "");
  await attachVolume(tx, row);
  await saveSealedValues(tx, values);
  if (key && hasConnections) await insertAtCreate(tx, { session: row, key }, connections);
  const { id, template } = row;
  const checkpointId = settings.origin_checkpoint_id;
  const meta = {
    template,
    ...(checkpointId && { checkpoint_id: checkpointId }),
    ...(row.volume_id !== null && { volume_id: row.volume_id }),
    ...(hasConnections && { connections: connections.map(({ name, host }) => ({ name, host })) }),
  };
  await appendEntry(deps, tx, { by, action: "session.create", target: id, sessionId: id, meta });
  return row;
}

/**
 * Refuses a size without a baseline. Allows every size if the node was never reached: provisioning waits for the node.
 * A start from a snapshot needs no baseline, and one from a template of an image has its own.
 */
function checkSize(info: NodeInfo | undefined, settings: Chosen & { size: Size }): void {
  if (!info || settings.origin_snapshot_id || settings.baseline) return;
  const sizes = new Set(baselinesFor(info, settings.template).map(({ size }) => size));
  if (sizes.has(settings.size)) return;
  const available = [...sizes].join(", ");
  throw new ApiError(
    "size_unavailable",
    `size: ${settings.size} can be started on no node; available: ${available || "none yet"}`,
  );
}

/** Refuses if the node last reported too little disk. If its disk filled up since, the node refuses the start. */
function checkDisk(info: NodeInfo | undefined): void {
  if (info?.has_disk_room === false)
    throw new ApiError("node_disk_pressure", "the node has too little free disk for another session");
}

function nameTaken(name: string): ApiError {
  return new ApiError(
    "conflict",
    `name: another session of the project is called ${JSON.stringify(name)}; destroy it or choose another name`,
  );
}

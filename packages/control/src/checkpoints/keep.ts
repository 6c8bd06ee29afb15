/** Records a snapshot as a checkpoint. */
import { type CheckpointCreate, LIMITS } from "@vivarium/contract/api";
import type { SnapshotStatus } from "@vivarium/contract/node";
import type { Queries } from "../db/pool.ts";
import { ApiError } from "../errors/api-error.ts";
import { appendEvent, eventOf } from "../events/append.ts";
import type { Keyring } from "../secrets/keyring.ts";
import { openStateKey } from "../secrets/state-key.ts";
import { openVariables, sealForCheckpoint } from "../secrets/variables.ts";
import type { SessionRow } from "../sessions/store.ts";
import { type CheckpointRow, countCheckpoints, findCheckpointByName, insertCheckpoint } from "./store.ts";

/** The caller must have locked the organisation's row, so that no other checkpoint is counted meanwhile. */
export async function keepCheckpoint(
  { keyring }: { keyring: Keyring },
  tx: Queries,
  session: SessionRow,
  body: CheckpointCreate,
  snapshot: SnapshotStatus,
): Promise<CheckpointRow> {
  await checkQuota(tx, session, body.name);
  const { env } = await openVariables({ db: tx, keyring }, session);
  const owner = { org_id: session.org_id, id: snapshot.snapshot_id };
  const stateKey = await openStateKey(keyring, session);
  const sealed = sealForCheckpoint(keyring, owner, { env, stateKey });
  const row = await insertCheckpoint(tx, { ...rowOf(session, body, snapshot), ...sealed });
  if (row === "name_taken") throw nameTaken(body.name ?? "");
  const { id: checkpoint_id, size_bytes } = row;
  await appendEvent(tx, eventOf(session, "checkpoint.created", { checkpoint_id, size_bytes }));
  return row;
}

/** Refuses a checkpoint whose name is taken, or for which the organisation has no quota left. */
export async function checkQuota(
  db: Queries,
  { id, org_id: orgId }: Pick<SessionRow, "id" | "org_id">,
  name: string | null | undefined,
): Promise<void> {
  if (name != null && (await findCheckpointByName(db, id, name))) throw nameTaken(name);
  const count = await countCheckpoints(db, orgId);
  if (count < LIMITS.checkpointsPerOrg) return;
  throw new ApiError(
    "conflict",
    `your organisation may keep ${LIMITS.checkpointsPerOrg} checkpoints and has ${count}; delete one first`,
  );
}

function rowOf(session: SessionRow, body: CheckpointCreate, snapshot: SnapshotStatus) {
  const hasLabels = Object.keys(body.labels ?? {}).length > 0;
  return {
    id: snapshot.snapshot_id,
    org_id: session.org_id,
    project_id: session.project_id,
    session_id: session.id,
    name: body.name ?? null,
    labels: hasLabels ? JSON.stringify(body.labels) : null,
    size_bytes: snapshot.bytes,
    size: session.size,
    template: session.template,
    template_version: session.template_version,
    baseline: session.baseline,
    egress: JSON.stringify(session.egress),
    no_sudo: session.no_sudo,
    may_hold_secrets: session.may_hold_secrets,
  };
}

function nameTaken(name: string): ApiError {
  return new ApiError(
    "conflict",
    `name: this session has a checkpoint called ${JSON.stringify(name)} already; delete it or choose another name`,
  );
}

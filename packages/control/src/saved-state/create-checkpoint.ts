/** Creates a checkpoint: a saved state of a session that outlives the session. */

import type { CheckpointCreate } from "@vivarium/contract/api";
import type { Caller } from "../access/caller.ts";
import type { Scope } from "../access/principal.ts";
import { lockOrg } from "../access/store.ts";
import { checkQuota, keepCheckpoint } from "../checkpoints/keep.ts";
import { type CheckpointRow, findCheckpointById } from "../checkpoints/store.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { type Kept, keepSnapshot } from "./snapshot-steps.ts";

export async function createCheckpoint(
  deps: MoveDeps,
  scope: Scope,
  { sessionId, body, by }: { sessionId: string; body: CheckpointCreate; by: Caller },
): Promise<Kept<CheckpointRow>> {
  return await keepSnapshot(deps, scope, sessionId, {
    kind: "checkpoint",
    archive: "checkpoint",
    prefix: "chk_",
    check: (session) => checkQuota(deps.db, session, body.name),
    // Locks the organisation's row, so that no other checkpoint is counted at the same time.
    lock: (tx, { org_id: orgId }) => lockOrg(tx, orgId),
    find: findCheckpointById,
    keep: (tx, session, snapshot) => keepCheckpoint(deps, tx, session, body, snapshot),
    by,
    entryOf: ({ id }) => ({ action: "checkpoint.create", target: id }),
    factsOf: ({ id }) => ({ checkpoint_id: id }),
  });
}

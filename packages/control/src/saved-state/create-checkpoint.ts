/** Creates a checkpoint: a saved state of a session that outlives the session. */

import type { CheckpointCreate } from "@vivarium/contract/api";
import type { CaptureTimings, SnapshotStatus } from "@vivarium/contract/node";
import { randomId } from "@vivarium/kit/id";
import { type Principal, scopeOf } from "../access/principal.ts";
import { lockOrg } from "../access/store.ts";
import { checkQuota, keepCheckpoint } from "../checkpoints/keep.ts";
import { type CheckpointRow, findCheckpointById } from "../checkpoints/store.ts";
import { untilStored } from "../db/retry.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { carryOut, type Finished, operate } from "../operations/frame.ts";
import type { Operation } from "../operations/operations.ts";
import { BUSY, whenFree } from "../operations/when-free.ts";
import { getSession } from "../sessions/get.ts";
import { requireSnapshotable } from "./require-snapshotable.ts";
import { snapshotSteps } from "./snapshot-steps.ts";

export interface CheckpointInput {
  sessionId: string;
  body: CheckpointCreate;
}

export interface Created {
  checkpoint: CheckpointRow;
  timings: CheckpointTimings;
}
type CheckpointTimings = Partial<CaptureTimings> & { total: number };

export async function createCheckpoint(
  deps: MoveDeps,
  principal: Principal,
  { sessionId, body }: CheckpointInput,
): Promise<Created> {
  return await whenFree(deps, sessionId, async () => {
    const session = await requireSnapshotable(deps, await getSession(deps.db, scopeOf(principal), sessionId));
    if (session === BUSY) return BUSY;
    await checkQuota(deps.db, session, body.name);
    const claimed = deps.operations.claim(session, "checkpoint", { snapshot_id: `chk_${randomId()}` });
    return await operate(deps, claimed, (op) => takeCheckpoint(deps, op, body));
  });
}

async function takeCheckpoint(deps: MoveDeps, op: Operation, body: CheckpointCreate) {
  return await carryOut(deps, op, {
    ...snapshotSteps(deps, op),
    commit: (snapshot) => untilStored(() => commit(deps, op, body, snapshot)),
    finish: (checkpoint, snapshot, elapsedMs): Finished<Created> => {
      const timings = { ...snapshot.timings, total: elapsedMs() };
      return { outcome: { checkpoint, timings }, timings, facts: { checkpoint_id: checkpoint.id } };
    },
  });
}

/** Inserts the checkpoint and ends the operation in one transaction: the snapshot always has exactly one owner. */
async function commit(
  deps: MoveDeps,
  op: Operation,
  body: CheckpointCreate,
  snapshot: SnapshotStatus,
): Promise<CheckpointRow | undefined> {
  return await deps.db.transaction().execute(async (tx) => {
    // Locks the organisation's row, so that no other checkpoint is counted at the same time.
    await lockOrg(tx, op.session.org_id);
    const known = await findCheckpointById(tx, snapshot.snapshot_id);
    // An earlier commit succeeded, and only its confirmation was lost.
    if (known) return known;
    if (!(await deps.operations.clear(op, tx))) return undefined;
    return await keepCheckpoint(tx, op.session, body, snapshot);
  });
}

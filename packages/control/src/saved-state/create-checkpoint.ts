/** A named instant of a session, which outlives it (security.md C8 "Checkpoint of a live session"). */
import { type CheckpointCreate, LIMITS } from "@vivarium/contract/api";
import type { CaptureTimings, SnapshotStatus } from "@vivarium/contract/node";
import { randomId } from "@vivarium/kit/id";
import { takeOrgTurn } from "../access/orgs.ts";
import { type Principal, scopeOf } from "../access/principal.ts";
import {
  type CheckpointRow,
  countCheckpoints,
  findCheckpointById,
  findCheckpointByName,
  insertCheckpoint,
} from "../checkpoints/store.ts";
import type { Queries } from "../db/pool.ts";
import { untilStored } from "../db/retry.ts";
import { ApiError } from "../errors/api-error.ts";
import { appendEvent, eventOf } from "../events/append.ts";
import { carryOut, type Finished, operate } from "../operations/frame.ts";
import type { Operation } from "../operations/operations.ts";
import { BUSY, whenFree } from "../operations/when-free.ts";
import { getSession } from "../sessions/get.ts";
import type { SessionRow } from "../sessions/store.ts";
import { savable } from "./savable.ts";
import { type SaveStateDeps, savingSteps } from "./save-state.ts";

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
  deps: SaveStateDeps,
  principal: Principal,
  { sessionId, body }: CheckpointInput,
): Promise<Created> {
  return await whenFree(deps, sessionId, async () => {
    const session = await savable(deps, await getSession(deps.db, scopeOf(principal), sessionId));
    if (session === BUSY) return BUSY;
    await checkRoom(deps.db, session, body.name);
    const claimed = deps.operations.claim(session, "checkpoint", { snapshot_id: `chk_${randomId()}` });
    return await operate(deps, claimed, (op) => takeCheckpoint(deps, op, body));
  });
}

async function takeCheckpoint(deps: SaveStateDeps, op: Operation, body: CheckpointCreate) {
  return await carryOut(deps, op, {
    ...savingSteps(deps, op),
    commit: (snapshot) => untilStored(() => commit(deps, op, body, snapshot)),
    finish: (checkpoint, snapshot, elapsedMs): Finished<Created> => {
      const timings = { ...snapshot.timings, total: elapsedMs() };
      return { outcome: { checkpoint, timings }, timings, facts: { checkpoint_id: checkpoint.id } };
    },
  });
}

/** The row of the checkpoint and the end of the operation are one: the snapshot is never both kept and nobody's. */
async function commit(
  deps: SaveStateDeps,
  op: Operation,
  body: CheckpointCreate,
  snapshot: SnapshotStatus,
): Promise<CheckpointRow | undefined> {
  return await deps.db.transaction().execute(async (tx) => {
    // Counted under the organisation's turn, so that checkpoints of other sessions do not slip in.
    await takeOrgTurn(tx, op.session.org_id);
    const known = await findCheckpointById(tx, snapshot.snapshot_id);
    // An earlier attempt was stored, and its confirmation lost.
    if (known) return known;
    if (!(await deps.operations.clear(op, tx))) return undefined;
    await checkRoom(tx, op.session, body.name);
    const row = await insertCheckpoint(tx, rowOf(op.session, body, snapshot));
    if (row === "name_taken") throw nameTaken(body.name ?? "");
    const { id: checkpoint_id, size_bytes } = row;
    await appendEvent(tx, eventOf(op.session, "checkpoint.created", { checkpoint_id, size_bytes }));
    return row;
  });
}

async function checkRoom(
  db: Queries,
  { id, org_id: orgId }: SessionRow,
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
    env: session.env && JSON.stringify(session.env),
    egress: JSON.stringify(session.egress),
    no_sudo: session.no_sudo,
  };
}

function nameTaken(name: string): ApiError {
  return new ApiError(
    "conflict",
    `name: this session has a checkpoint called ${JSON.stringify(name)} already; delete it or choose another name`,
  );
}

/** Starts a new session from a checkpoint. It is live when the call answers. */

import type { ParsedCheckpointStart } from "@vivarium/contract/api";
import type { Caller } from "../access/caller.ts";
import { type Principal, scopeOf } from "../access/principal.ts";
import { resolveProject } from "../access/resolve-project.ts";
import { getCheckpoint } from "../checkpoints/get.ts";
import { untilStored } from "../db/retry.ts";
import { createAttempt, emitIfRefused } from "../events/refusals.ts";
import { apiErrorOfPreparation } from "../fleet/api-error-of-node.ts";
import { NodeError } from "../fleet/node-error.ts";
import { provisionalLeaseColumns } from "../leases/provisional.ts";
import type { SessionRow } from "../sessions/store.ts";
import { admitSession } from "../starts/admit.ts";
import { settingsOf } from "../starts/create.ts";
import { type CheckedCreate, checkCreate } from "../starts/create-rules.ts";
import type { StartDeps } from "../starts/deps.ts";
import { startFrom } from "../starts/start-from.ts";
import { markAllLive, startTogether, withProvisional } from "../starts/start-together.ts";

export async function startCheckpoint(
  deps: StartDeps,
  principal: Principal,
  { checkpointId, body, by }: { checkpointId: string; body: ParsedCheckpointStart; by: Caller },
): Promise<SessionRow> {
  const request = checkCreate(deps, { ...body, from_checkpoint: checkpointId });
  await getCheckpoint(deps.db, scopeOf(principal), checkpointId);
  const wanted = createAttempt(principal, body.project_id, "checkpoint_start");
  return await emitIfRefused(deps.db, wanted, () => startSession(deps, principal, request, by));
}

async function startSession(
  deps: StartDeps,
  principal: Principal,
  request: CheckedCreate,
  by: Caller,
): Promise<SessionRow> {
  const session = await deps.db.transaction().execute(async (tx) => {
    const projectId = await resolveProject(tx, principal, request.project_id);
    const { start } = await startFrom(deps, tx, scopeOf(principal), request);
    const settings = { ...settingsOf(deps, request, projectId, start), ...provisionalLeaseColumns() };
    return await admitSession(deps, tx, principal, { settings, by });
  });
  const over = new AbortController();
  return await withProvisional(deps, [session], async () => {
    const ready = await startTogether(deps, [session], over.signal).catch(explain);
    const [live] = await untilStored(() =>
      deps.db.transaction().execute((tx) => markAllLive(deps, tx, ready)),
    );
    for (const { timings } of ready) deps.meter.recordDuration("create", timings);
    deps.signals.moved(session.id);
    return live ?? session;
  });
}

function explain(error: unknown): never {
  throw error instanceof NodeError ? apiErrorOfPreparation(error) : error;
}

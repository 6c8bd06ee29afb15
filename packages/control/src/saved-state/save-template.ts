/** Saves a session's state as a version of a template of its organisation. */

import type { Template, TemplateSave } from "@vivarium/contract/api";
import type { SnapshotStatus } from "@vivarium/contract/node";
import { randomId } from "@vivarium/kit/id";
import { type Principal, scopeOf } from "../access/principal.ts";
import { untilStored } from "../db/retry.ts";
import { ApiError } from "../errors/api-error.ts";
import type { NodeState } from "../fleet/node-state.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { carryOut, type Finished, operate } from "../operations/frame.ts";
import type { Operation } from "../operations/operations.ts";
import { BUSY, whenFree } from "../operations/when-free.ts";
import { getSession } from "../sessions/get.ts";
import { keepVersion } from "../templates/keep.ts";
import { isOfficial } from "../templates/official.ts";
import { toTemplate } from "../templates/record.ts";
import { findVersionById, listVersions, type TemplateRow } from "../templates/store.ts";
import { requireSnapshotable } from "./require-snapshotable.ts";
import { snapshotSteps } from "./snapshot-steps.ts";

export type SaveTemplateDeps = MoveDeps & { node: NodeState };

interface Saved {
  row: TemplateRow;
  timings: Record<string, number>;
}

export async function saveTemplate(
  deps: SaveTemplateDeps,
  principal: Principal,
  { sessionId, body }: { sessionId: string; body: TemplateSave },
): Promise<{ template: Template; timings: Record<string, number> }> {
  const scope = scopeOf(principal);
  if (isOfficial(await deps.node.current(), body.name)) throw reserved(body.name);
  const { row, timings } = await whenFree(deps, sessionId, async () => {
    const session = await requireSnapshotable(deps, await getSession(deps.db, scope, sessionId));
    if (session === BUSY) return BUSY;
    const claimed = deps.operations.claim(session, "save_template", { snapshot_id: `tpl_${randomId()}` });
    return await operate(deps, claimed, (op) => takeTemplate(deps, op, body));
  });
  const versions = await listVersions(deps.db, scope, row.name);
  return { template: toTemplate(row, versions, deps.node.lastKnown), timings };
}

async function takeTemplate(deps: SaveTemplateDeps, op: Operation, body: TemplateSave) {
  return await carryOut(deps, op, {
    ...snapshotSteps(deps, op),
    commit: (snapshot) => untilStored(() => commit(deps, op, body, snapshot)),
    finish: (row, snapshot, elapsedMs): Finished<Saved> => {
      const timings = { ...snapshot.timings, total: elapsedMs() };
      return { outcome: { row, timings }, timings, facts: { template: row.name, version: row.version } };
    },
  });
}

/** Inserts the version and ends the operation in one transaction, so that the snapshot always has exactly one owner. */
async function commit(
  deps: SaveTemplateDeps,
  op: Operation,
  { name, description }: TemplateSave,
  { snapshot_id: id }: SnapshotStatus,
): Promise<TemplateRow | undefined> {
  const { session } = op;
  return await deps.db.transaction().execute(async (tx) => {
    const known = await findVersionById(tx, id);
    // An earlier commit succeeded, and only its confirmation was lost.
    if (known) return known;
    if (!(await deps.operations.clear(op, tx))) return undefined;
    return await keepVersion(tx, session, { id, name, description });
  });
}

function reserved(name: string): ApiError {
  return new ApiError(
    "forbidden",
    `name: ${JSON.stringify(name)} is the name of an official template; choose another`,
  );
}

/**
 * What a checkpoint, a fork and a template have in common: the state of a session becomes a snapshot, which somebody
 * then keeps, or which is gone again. The session itself goes on as it was, whatever happens.
 */

import type { SnapshotSpec } from "@vivarium/contract/node";
import type { MoveDeps } from "../moves/deps.ts";
import type { Operation } from "../operations/operations.ts";
import { isActive, machineIdOf } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";

/** Steps of the operation that saves the state under the name that it chose; `commit` and `finish` are the caller's. */
export function snapshotSteps(deps: MoveDeps, op: Operation) {
  return {
    make: (signal: AbortSignal) => deps.nodes.putSnapshot(snapshotIdOf(op), sourceOf(op.session), signal),
    remove: async () => undefined,
    rollBack: () => discardSnapshot(deps, op),
    whenUnsure: "roll back" as const,
  };
}

/** Takes an operation back that commits nothing: its snapshot is nobody's. Bears repetition, by any process. */
export async function discardSnapshot(deps: MoveDeps, op: Operation): Promise<void> {
  await deps.nodes
    .deleteSnapshot(snapshotIdOf(op))
    .catch((err: unknown) =>
      deps.log.warn({ err }, "a snapshot could not be deleted yet; the sweep does it"),
    );
  await deps.operations.clear(op);
}

function snapshotIdOf(op: Operation): string {
  if (op.input.snapshot_id === undefined) throw new Error(`the ${op.kind} in the row names no snapshot`);
  return op.input.snapshot_id;
}

/** A paused session is not woken for this: its saved state is shared. */
function sourceOf(session: SessionRow): SnapshotSpec {
  if (isActive(session.state)) return { machine_id: machineIdOf(session), after: "continue" };
  if (session.snapshot_id === null) throw new Error("a paused session has no saved state");
  return { snapshot_id: session.snapshot_id };
}

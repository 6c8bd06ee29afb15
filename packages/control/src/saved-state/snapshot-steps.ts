/**
 * Steps shared by checkpoint, fork and template: they take a snapshot of a session, which is then kept or deleted. The
 * session itself does not change, whatever the outcome.
 */

import type { SnapshotSpec } from "@vivarium/contract/node";
import type { MoveDeps } from "../moves/deps.ts";
import type { Operation } from "../operations/operations.ts";
import { isActive, machineIdOf } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";

/** Take the snapshot, or roll back. The caller adds `commit` and `finish`. */
export function snapshotSteps(deps: MoveDeps, op: Operation) {
  return {
    make: (signal: AbortSignal) => deps.nodes.putSnapshot(snapshotIdOf(op), sourceOf(op.session), signal),
    remove: async () => undefined,
    rollBack: () => discardSnapshot(deps, op),
    whenUnsure: "roll back" as const,
  };
}

/** Deletes the snapshot of an operation that is not committed, and ends the operation. Idempotent, in any process. */
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

/** A paused session is not woken: the snapshot shares its saved state. */
function sourceOf(session: SessionRow): SnapshotSpec {
  if (isActive(session.state)) return { machine_id: machineIdOf(session), after: "continue" };
  if (session.snapshot_id === null) throw new Error("a paused session has no saved state");
  return { snapshot_id: session.snapshot_id };
}

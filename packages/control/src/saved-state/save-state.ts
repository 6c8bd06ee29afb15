/**
 * What a checkpoint, a fork and a template have in common: the state of a session becomes a snapshot, which somebody
 * then keeps, or which is gone again. The session itself goes on as it was, whatever happens.
 */

import type { SnapshotSpec, SnapshotStatus } from "@vivarium/contract/node";
import type { Log } from "@vivarium/kit/log";
import type { Database } from "../db/pool.ts";
import { isStoreUnavailable } from "../db/postgres-errors.ts";
import { ApiError } from "../errors/api-error.ts";
import { apiErrorOfOperation } from "../fleet/api-error-of-node.ts";
import type { NodeClient } from "../fleet/node-client.ts";
import { NodeError } from "../fleet/node-error.ts";
import type { Meter } from "../metrics/meter.ts";
import { aftermathOf, endedMeanwhile } from "../operations/aftermath.ts";
import type { Operation, Operations } from "../operations/operations.ts";
import { untilAnswered } from "../operations/until-answered.ts";
import { isActive, machineIdOf } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";

export interface SaveStateDeps {
  db: Database;
  nodes: NodeClient;
  operations: Operations;
  meter: Meter;
  log: Log;
}

/** Saves the state under the name that the operation chose. `keep` commits it; where it throws, nothing stays. */
export async function saveState<T>(
  deps: SaveStateDeps,
  op: Operation,
  keep: (snapshot: SnapshotStatus) => Promise<T>,
): Promise<T> {
  try {
    const snapshot = await untilAnswered(op.signal, (signal) =>
      deps.nodes.putSnapshot(snapshotIdOf(op), sourceOf(op.session), signal),
    );
    return await keep(snapshot);
  } catch (error) {
    // Whether it was committed is unknown: whoever takes the operation over reads it from the store.
    if (isStoreUnavailable(error)) throw error;
    await forgetState(deps, op);
    throw await explain(deps, op, error);
  }
}

/** Takes an operation back that commits nothing: its snapshot is nobody's. Bears repetition, by any process. */
export async function forgetState(deps: SaveStateDeps, op: Operation): Promise<void> {
  await deps.nodes
    .deleteSnapshot(snapshotIdOf(op))
    .catch((err: unknown) =>
      deps.log.warn({ err }, "a snapshot could not be deleted yet; the sweep does it"),
    );
  await deps.operations.clear(op);
}

/** Thrown inside a commit that finds the operation gone from its row. */
export class NotOurs extends Error {}

export function snapshotIdOf(op: Operation): string {
  if (op.input.snapshot_id === undefined) throw new Error(`the ${op.kind} in the row names no snapshot`);
  return op.input.snapshot_id;
}

/** A paused session is not woken for this: its saved state is shared. */
function sourceOf(session: SessionRow): SnapshotSpec {
  if (isActive(session.state)) return { machine_id: machineIdOf(session), after: "continue" };
  if (session.snapshot_id === null) throw new Error("a paused session has no saved state");
  return { snapshot_id: session.snapshot_id };
}

async function explain(deps: SaveStateDeps, op: Operation, error: unknown): Promise<unknown> {
  const isCalledOff = error instanceof NotOurs || op.signal.aborted;
  if (!isCalledOff) return error instanceof NodeError ? apiErrorOfOperation(error) : error;
  if ((await aftermathOf(deps, op)).is === "ended") return endedMeanwhile();
  return new ApiError("session_not_live", "the operation was broken off and has changed nothing; try again", {
    cause: error,
  });
}

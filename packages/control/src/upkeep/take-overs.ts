/** Takes over operations whose process died: rolls them forward or back. */
import { crashPoint } from "@vivarium/kit/crash-point";
import { ApiError } from "../errors/api-error.ts";
import { carryOutPause } from "../moves/pause-machine.ts";
import { settleMachines } from "../moves/settle.ts";
import { carryOutWake } from "../moves/wake.ts";
import type { Operation } from "../operations/operations.ts";
import { rollBackFork } from "../saved-state/fork.ts";
import { rollBackRestore } from "../saved-state/restore.ts";
import { discardSnapshot } from "../saved-state/snapshot-steps.ts";
import type { OperationKind } from "../sessions/operation-kinds.ts";
import type { UpkeepDeps } from "./deps.ts";

/** Pause, wake and settle are rolled forward. Restore, fork, checkpoint and template are rolled back. */
const TAKE_OVERS: Record<OperationKind, (deps: UpkeepDeps, op: Operation) => Promise<unknown>> = {
  pause: carryOutPause,
  wake: carryOutWake,
  settle: settleMachines,
  restore: rollBackRestore,
  fork: rollBackFork,
  checkpoint: discardSnapshot,
  save_template: discardSnapshot,
};

export async function takeOverOperations(deps: UpkeepDeps, lapsedBefore: Date): Promise<void> {
  for (const row of await deps.operations.claimLapsed(lapsedBefore)) {
    const work = row.op && TAKE_OVERS[row.op];
    if (!work) continue;
    crashPoint("take_over.claimed");
    const context = { session_id: row.id, op: row.op };
    deps.log.info(context, "taking over an operation whose process died");
    const done = deps.operations.run(row, (op) => work(deps, op), { isTakenOver: true });
    // No caller waits for the result, so an ApiError is only logged. If the operation is still in the row, the next
    // sweep takes it over again.
    deps.operations.runInBackground(
      done.catch((error: unknown) => {
        if (!(error instanceof ApiError)) throw error;
        deps.log.info({ ...context, reason: error.message }, "an operation that was taken over has failed");
      }),
    );
  }
}

/** Takes over operations whose process died: rolls them forward or back. */
import { crashPoint } from "@vivarium/kit/crash-point";
import type { Log } from "@vivarium/kit/log";
import { ApiError } from "../errors/api-error.ts";
import type { OperationKind } from "../sessions/operation-kinds.ts";
import type { Operation, Operations } from "./operations.ts";

/** The work of each kind of operation when it is taken over. */
export type TakeOvers<Deps> = Partial<Record<OperationKind, (deps: Deps, op: Operation) => Promise<unknown>>>;

export async function takeOverOperations<Deps extends { operations: Operations; log: Log }>(
  deps: Deps,
  takeOvers: TakeOvers<Deps>,
  lapsedBefore: Date,
): Promise<void> {
  for (const row of await deps.operations.claimLapsed(lapsedBefore)) {
    const work = row.op && takeOvers[row.op];
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

/** Operations whose process died are carried on, or taken back, by whoever finds them. */
import { crashPoint } from "@vivarium/kit/crash-point";
import type { Log } from "@vivarium/kit/log";
import { ApiError } from "../errors/api-error.ts";
import type { OperationKind } from "../sessions/operation-kinds.ts";
import type { Operation, Operations } from "./operations.ts";

/** What each kind of operation does when it is taken over. */
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
    deps.log.info(context, "an operation is taken over: its process is gone");
    const done = deps.operations.run(row, (op) => work(deps, op), { isTakenOver: true });
    // What it answers is nobody's to read; a node that is away lets it be tried again.
    deps.operations.behind(
      done.catch((error: unknown) => {
        if (!(error instanceof ApiError)) throw error;
        deps.log.info({ ...context, reason: error.message }, "an operation that was taken over came to this");
      }),
    );
  }
}

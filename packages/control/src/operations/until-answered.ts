/** Retries idempotent node calls while the node is away. */
import { sleep } from "@vivarium/kit/clock";
import { NodeError } from "../fleet/node-error.ts";

/** How long to retry while the node is away or restarts. */
const PATIENCE_MS = 5_000;
const PAUSE_MS = 250;
/** Limit of one call: enough to capture the largest machine on a slow disk. */
const CALL_MS = 300_000;

/** Returns the call's first answer. Throws an `unreachable` error only if no attempt reached the node. */
export async function untilAnswered<T>(
  over: AbortSignal,
  call: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const deadline = performance.now() + PATIENCE_MS;
  let brokenOff: NodeError | undefined;
  for (;;) {
    try {
      return await call(AbortSignal.any([over, AbortSignal.timeout(CALL_MS)]));
    } catch (error) {
      if (!(error instanceof NodeError)) throw error;
      if (error.failure === "broken") brokenOff = error;
      else if (error.failure !== "unreachable") throw error;
      if (over.aborted || performance.now() > deadline) throw brokenOff ?? error;
    }
    await sleep(PAUSE_MS, over);
  }
}

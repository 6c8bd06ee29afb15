import { sleep } from "@vivarium/kit/clock";
import { NodeError } from "../fleet/node-error.ts";

/** How long a node that is away, or starts again, is waited for. */
const PATIENCE_MS = 5_000;
const PAUSE_MS = 250;
/** One call: the capture of the largest machine on a slow disk. */
const CALL_MS = 300_000;

/**
 * Repeats a node call that gives the same answer when it is made again, while the node is away. An error of
 * `unreachable` means that no attempt got through.
 */
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

/** The node has said no: nothing more of the operation is going to happen there. */
export function isRefusal(error: NodeError): boolean {
  return error.failure === "refused" || error.failure === "garbled";
}

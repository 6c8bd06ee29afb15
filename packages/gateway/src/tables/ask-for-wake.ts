/** Asks the node to wake a session. */
import { WakeOutcome } from "@vivarium/contract/gateway";
import type { Log } from "@vivarium/kit/log";
import type { NodeClient } from "./node-client.ts";

/** Time limit of the call: the node answers after at most 30 s. */
const WAKE_MS = 35_000;
const RETRY_AFTER_S = 2;

/** Never rejects: a call that fails is a refusal with status 503. */
export async function askForWake(
  { node, log }: { node: NodeClient; log: Log },
  sessionId: string,
): Promise<WakeOutcome> {
  try {
    const { status, body } = await node.post("/v1/wakes", { session_id: sessionId }, WAKE_MS);
    if (status === 200) return WakeOutcome.parse(body);
    throw new Error(`the node answered ${status}`);
  } catch (error) {
    log.warn({ err: error, session: sessionId }, "a wake could not be asked for");
    return { result: "refused", status: 503, retry_after_s: RETRY_AFTER_S };
  }
}

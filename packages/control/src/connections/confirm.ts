/** Brings a stored change of Connections into force on the node of a session that may have a machine. */
import { apiErrorOfOperation } from "../fleet/api-error-of-node.ts";
import { NodeError } from "../fleet/node-error.ts";
import { isActive } from "../sessions/state.ts";
import { findSessionById } from "../sessions/store.ts";
import type { ConnectionDeps } from "./deps.ts";
import { putInForce } from "./put-in-force.ts";

/**
 * Resolves once everything that used an older credential is closed. Of a paused session the node has nothing. If the node
 * does not confirm, the caller gets its error; the change is kept, and sent again with the lease.
 */
export async function confirmed(deps: ConnectionDeps, sessionId: string): Promise<void> {
  // Read after the change: a machine that is started from now on gets the newest Connections.
  const session = await findSessionById(deps.db, sessionId);
  if (!session || (!isActive(session.state) && session.op === null)) return;
  try {
    await putInForce(deps, sessionId);
  } catch (error) {
    if (!(error instanceof NodeError)) throw error;
    deps.log.warn(
      { session_id: sessionId, reason: error.message },
      "a change of a Connection waits for the node",
    );
    throw apiErrorOfOperation(error);
  }
}

/** Brings a session's wish into force on its machine. */
import type { Log } from "@vivarium/kit/log";
import type { Database } from "../db/pool.ts";
import { apiErrorOfOperation } from "../fleet/api-error-of-node.ts";
import type { NodeClient } from "../fleet/node-client.ts";
import { NodeError } from "../fleet/node-error.ts";
import { machineIdOf } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import { findSessionById } from "../sessions/store.ts";
import { networkSpec } from "./network-spec.ts";
import { saveApplied, saveWish } from "./network-store.ts";

export interface ApplyDeps {
  db: Database;
  nodes: NodeClient;
  log: Log;
}

/**
 * Resolves once the machine has this generation, or a newer one, in force. A NodeError says that nobody knows: the wish
 * is in the row, and the sweep goes on with it.
 */
export async function applyNetwork(deps: ApplyDeps, session: SessionRow): Promise<void> {
  try {
    await deps.nodes.putNetwork(machineIdOf(session), networkSpec(session));
    await saveApplied(deps.db, session);
  } catch (error) {
    if (!(error instanceof NodeError) || error.code !== "network_conflict") throw error;
    await catchUp(deps, session, error);
  }
}

/** For callers: a refusal becomes what they are told. */
export async function applyForCaller(deps: ApplyDeps, session: SessionRow): Promise<void> {
  try {
    await applyNetwork(deps, session);
  } catch (error) {
    if (!(error instanceof NodeError)) throw error;
    deps.log.warn(
      { session_id: session.id, reason: error.message },
      "a change of the network waits for the node",
    );
    throw apiErrorOfOperation(error);
  }
}

/**
 * The machine has a later generation than ours. With one in the row, ours was in force in between, or never needed to
 * be. With none the row is older than the machine, after a restore of the database: it moves on.
 */
async function catchUp(deps: ApplyDeps, session: SessionRow, conflict: NodeError): Promise<void> {
  const now = await findSessionById(deps.db, session.id);
  if (now?.state !== "live" || now.incarnation !== session.incarnation) throw conflict;
  if (now.network_generation > session.network_generation) return await applyNetwork(deps, now);
  await saveWish(deps.db, now, {});
  throw conflict;
}

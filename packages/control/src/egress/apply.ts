/** Applies the desired network of a session to its machine. */
import { apiErrorOfOperation } from "../fleet/api-error-of-node.ts";
import { NodeError } from "../fleet/node-error.ts";
import { getSession } from "../sessions/get.ts";
import { isNetworkFixed } from "../sessions/operation-kinds.ts";
import { machineIdOf } from "../sessions/state.ts";
import { findSessionById, type SessionRow } from "../sessions/store.ts";
import type { EgressDeps } from "./deps.ts";
import { saveApplied, saveDesiredNetwork } from "./network-store.ts";
import { networkSpec } from "./prepare.ts";

type ApplyDeps = Pick<EgressDeps, "db" | "nodes" | "log">;

/**
 * Resolves once the machine has this generation, or a newer one, in force. After a NodeError the outcome is unknown:
 * the row keeps the desired network, and the sweep applies it.
 */
export async function applyNetwork(deps: ApplyDeps, session: SessionRow): Promise<void> {
  try {
    await deps.nodes.putNetwork(machineIdOf(session), networkSpec(session));
    await saveApplied(deps.db, session);
  } catch (error) {
    if (!(error instanceof NodeError) || error.code !== "network_conflict") throw error;
    await resolveConflict(deps, session, error);
  }
}

/** Like `applyNetwork`, with an ApiError for the caller instead of a NodeError. */
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
 * Applies the stored network to a live machine. True once it is in force, or before a paused session's next machine runs.
 * False: the machine is being replaced or paused, so decide again.
 */
export async function isApplied(deps: ApplyDeps, desired: SessionRow): Promise<boolean> {
  if (desired.state === "paused" || desired.network_applied >= desired.network_generation) return true;
  try {
    await applyNetwork(deps, desired);
    return true;
  } catch (error) {
    if (!(error instanceof NodeError)) throw error;
    const now = await getSession(deps.db, { orgId: desired.org_id, projectId: null }, desired.id);
    if (now.state !== "live" || now.incarnation !== desired.incarnation || isNetworkFixed(now.op))
      return false;
    deps.log.warn({ session_id: desired.id, reason: error.message }, "a change of egress waits for the node");
    throw apiErrorOfOperation(error);
  }
}

/**
 * Handles a machine with a higher generation than `session`. If the row has a higher one by now, applies that one.
 * Otherwise the database was restored from a backup: increases the row's generation, and the sweep applies it.
 */
async function resolveConflict(deps: ApplyDeps, session: SessionRow, conflict: NodeError): Promise<void> {
  const now = await findSessionById(deps.db, session.id);
  if (now?.state !== "live" || now.incarnation !== session.incarnation) throw conflict;
  if (now.network_generation > session.network_generation) return await applyNetwork(deps, now);
  await saveDesiredNetwork(deps.db, now, {});
  throw conflict;
}

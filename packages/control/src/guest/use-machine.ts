/** Starts guest operations: waits for the session, wakes it, and keeps it from idling (docs/spec/sessions.md). */
import type { Scope } from "../access/principal.ts";
import type { Database } from "../db/pool.ts";
import { apiErrorOfNode } from "../fleet/api-error-of-node.ts";
import { NodeError } from "../fleet/node-error.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { stopsGuest } from "../sessions/operation-kinds.ts";
import { findSessionById, type SessionRow } from "../sessions/store.ts";
import { findEndError, hasSameMachine } from "./explain-break.ts";
import { type LiveSession, waitForLive } from "./wait-for-live.ts";

export interface InUse<T> extends LiveSession {
  result: T;
  /** Ends the activity, so that the session may become idle. */
  release: () => void;
}

/** Codes for a machine that was stopped for a pause, or replaced, during the request. */
const MOVED_CODES = new Set(["machine_held", "machine_gone", "machine_not_found"]);
const MOVES = 5;

/**
 * Starts an operation in the machine of the caller's session. Waits for the session, wakes it, and starts over when a
 * pause interrupts the start. `use` is called again only after a NodeError that means that nothing was done. Other
 * NodeErrors become ApiErrors, and all other errors are rethrown.
 */
export async function useMachine<T>(
  deps: MoveDeps,
  scope: Scope,
  { sessionId, waitMs }: { sessionId: string; waitMs?: number },
  use: (session: SessionRow) => Promise<T>,
): Promise<InUse<T>> {
  // Race: a pause for idleness may claim the row at this moment. Activity is registered before the row is read, so the
  // pause sees it.
  const { confirm, release } = deps.activity.lease(scope.orgId, sessionId);
  try {
    for (let moves = 0; ; moves++) {
      const live = await waitForLive(deps, scope, sessionId, waitMs);
      if (moves === 0) confirm();
      const begun = await begin(deps, live.session, use, moves < MOVES);
      if (begun) return { ...live, result: begun.result, release };
    }
  } catch (error) {
    release();
    throw error;
  }
}

/** Undefined when the machine was stopped or replaced, and another attempt is worthwhile. */
async function begin<T>(
  deps: MoveDeps,
  session: SessionRow,
  use: (session: SessionRow) => Promise<T>,
  mayMove: boolean,
): Promise<{ result: T } | undefined> {
  try {
    return { result: await use(session) };
  } catch (error) {
    if (!(error instanceof NodeError)) throw error;
    if (mayMove && (await hasMoved(deps.db, session, error))) return undefined;
    throw (await findEndError(deps.db, session)) ?? apiErrorOfNode(error);
  }
}

/**
 * Whether nothing was done because a pause or restore took the machine away. An agent also stops answering in the
 * moment in which its machine is stopped. The node uses `agent_unavailable` only for operations that may be repeated.
 */
async function hasMoved(db: Database, session: SessionRow, error: NodeError): Promise<boolean> {
  if (!isMachineMoved(error) && error.code !== "agent_unavailable") return false;
  const now = await findSessionById(db, session.id);
  // An ended session gets no other machine.
  if (now?.state !== "live" && now?.state !== "paused") return false;
  return stopsGuest(now.op) || !hasSameMachine(now, session);
}

export function isMachineMoved(error: NodeError): boolean {
  return MOVED_CODES.has(error.code ?? "");
}

/** What every guest operation has in common (wire.md 4.6): it waits, it wakes, it keeps the session from being idle. */

import type { Scope } from "../access/principal.ts";
import type { Database } from "../db/pool.ts";
import { apiErrorOfNode } from "../fleet/api-error-of-node.ts";
import { NodeError } from "../fleet/node-error.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { stopsGuest } from "../sessions/operation-kinds.ts";
import type { SessionRow } from "../sessions/store.ts";
import { findSessionById } from "../sessions/store.ts";
import { endedMeanwhile, isSameStretch } from "./broken-off.ts";
import { type LiveSession, waitForLive } from "./wait-for-live.ts";

export interface InUse<T> extends LiveSession {
  result: T;
  /** The session may become idle from now on. */
  release: () => void;
}

/** What a node says when the machine stands still, or gave way to another, under the request. */
const MOVED_CODES = new Set(["machine_held", "machine_gone", "machine_not_found"]);
const MOVES = 5;

/**
 * Begins something in the machine of the caller's session: waits for the session, wakes it, and does so again when it
 * is paused under the beginning. `use` is called again only after a NodeError that says that nothing was done; what it
 * throws otherwise is passed on.
 */
export async function useMachine<T>(
  deps: MoveDeps,
  scope: Scope,
  { sessionId, waitMs }: { sessionId: string; waitMs?: number },
  use: (session: SessionRow) => Promise<T>,
): Promise<InUse<T>> {
  // Held before the row is read: a pause for idleness that claims the row later sees it.
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

/** Undefined when the machine moved away under it, and another beginning is worth it. */
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
    throw (await endedMeanwhile(deps.db, session)) ?? apiErrorOfNode(error);
  }
}

/**
 * True when nothing was begun because the session is being paused, or was. An agent whose machine is held in this very
 * moment does not answer any more; what may be done twice is refused with that code, and nothing else.
 */
async function hasMoved(db: Database, session: SessionRow, error: NodeError): Promise<boolean> {
  if (!isMove(error) && error.code !== "agent_unavailable") return false;
  const now = await findSessionById(db, session.id);
  // One that has ended has no other machine.
  if (now?.state !== "live" && now?.state !== "paused") return false;
  return stopsGuest(now.op) || !isSameStretch(now, session);
}

export function isMove(error: NodeError): boolean {
  return MOVED_CODES.has(error.code ?? "");
}

import type { MoveDeps } from "../moves/deps.ts";
import { expireIfLifetimeOver } from "../moves/expire.ts";
import { BUSY } from "../operations/when-free.ts";
import { notUsable } from "../sessions/not-usable.ts";
import type { SessionRow } from "../sessions/store.ts";

/**
 * Throws unless the session's state can be saved or replaced: it is live, or paused with its lifetime not over. BUSY if
 * an operation is in flight, or the session moved.
 */
export async function requireSnapshotable(
  deps: MoveDeps,
  session: SessionRow,
): Promise<SessionRow | typeof BUSY> {
  if (session.state !== "live" && session.state !== "paused") throw notUsable(session);
  if (session.op !== null) return BUSY;
  if (session.state === "paused" && (await expireIfLifetimeOver(deps, session))) return BUSY;
  return session;
}

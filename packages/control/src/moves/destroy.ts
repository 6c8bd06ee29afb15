/** Ends a session for good: the row first, so that the session is unreachable at once, then the machine. */
import type { EndReason, SessionEvent } from "@vivarium/contract/api";
import { crashPoint } from "@vivarium/kit/crash-point";
import type { Caller } from "../access/caller.ts";
import { ApiError, SessionNotFound } from "../errors/api-error.ts";
import { decide, isActive } from "../sessions/state.ts";
import { findSessionById, type SessionRow } from "../sessions/store.ts";
import type { MoveDeps } from "./deps.ts";
import { releaseSession } from "./release-session.ts";
import { saveMove } from "./save-move.ts";

type DestroyEvent = Extract<SessionEvent, "destroy" | "first_exec_completed" | "failed_expired">;
interface DestroyOptions {
  event?: DestroyEvent;
  endReason?: EndReason;
  /** The caller that asked for it; absent: the service itself. */
  by?: Caller;
  /** If a machine may be running, its deletion is retried for up to 5 s while the node is away. */
  isNodeAwaited?: boolean;
}
const ATTEMPTS = 10;

export async function destroySession(
  deps: MoveDeps,
  session: SessionRow,
  { event = "destroy", endReason, by, isNodeAwaited }: DestroyOptions = {},
): Promise<void> {
  const { ended, before } = await moveToEnd(deps, session, { event, endReason, by });
  crashPoint("destroy.commit");
  deps.provisioner.cancel(session.id);
  deps.operations.cancel(session.id);
  deps.signals.moved(session.id);
  deps.log.info({ session_id: session.id, end_reason: ended.end_reason }, "session destroyed");
  const mayHaveMachine = isActive(before.state) || before.op !== null;
  await releaseSession(deps, ended, { isNodeAwaited: isNodeAwaited && mayHaveMachine });
}

/**
 * Ends the session even if an operation is in flight: the operation finds the session gone and cleans up after itself.
 * Race: the session may move before the write (a create that completes). Then the move is decided again.
 */
async function moveToEnd(
  deps: MoveDeps,
  session: SessionRow,
  { event, endReason, by }: { event: DestroyEvent; endReason?: EndReason; by?: Caller },
): Promise<{ ended: SessionRow; before: SessionRow }> {
  let current: SessionRow | undefined = session;
  for (let attempt = 0; attempt < ATTEMPTS && current; attempt++) {
    const move = decide(current, event, endReason);
    if (!move) throw new SessionNotFound();
    const saved = await saveMove(deps, session, move, { preempts: true, by });
    if (saved) return { ended: saved, before: current };
    current = await findSessionById(deps.db, session.id);
  }
  if (!current) throw new SessionNotFound();
  throw new ApiError("session_not_live", "the session keeps moving; try again");
}

/** Waits until no operation holds the session. This serialises the operations on one session. */
import { ApiError, SessionNotFound } from "../errors/api-error.ts";
import type { SessionSignals } from "../sessions/signals.ts";
import { endedDuringRequest } from "./ownership.ts";

/** Result of an attempt that found an operation in flight, or lost a race with a move of the session. */
export const BUSY = Symbol("busy");

/** Polling interval for moves by other processes. Moves by this process are signalled at once. */
const POLL_MS = 250;
const WAIT_MS = 60_000;

/** Repeats `attempt`, which reads the session and decides, while it returns BUSY. After `waitMs` throws `late()`. */
export async function whenFree<T>(
  { signals }: { signals: SessionSignals },
  sessionId: string,
  attempt: () => Promise<T | typeof BUSY>,
  { waitMs = WAIT_MS, late }: { waitMs?: number; late?: () => ApiError } = {},
): Promise<T> {
  const deadline = performance.now() + waitMs;
  let outcome = await attempt();
  while (outcome === BUSY) {
    if (performance.now() >= deadline) {
      const text = `another operation has held the session for ${waitMs / 1000} s; try again`;
      throw late?.() ?? new ApiError("session_not_live", text);
    }
    // Race: listening starts before the row is read again, so that a move in between is not missed.
    const moved = signals.waitForMove(sessionId, POLL_MS);
    outcome = await attempt().catch(endedWhileWaiting);
    if (outcome === BUSY) await moved;
  }
  return outcome;
}

/** The session existed when the request came, so the error is `session_ended`, not `not_found`. */
function endedWhileWaiting(error: unknown): never {
  if (!(error instanceof SessionNotFound)) throw error;
  throw endedDuringRequest();
}

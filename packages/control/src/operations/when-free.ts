import { ApiError, SessionNotFound } from "../errors/api-error.ts";
import type { SessionSignals } from "../sessions/signals.ts";
import { endedMeanwhile } from "./aftermath.ts";

/** What an attempt gives that finds the session held by an operation, or moved under its decision. */
export const BUSY = Symbol("busy");

/** Moves by another process are noticed at this pace; those of this process at once. */
const POLL_MS = 250;
const WAIT_MS = 60_000;

/**
 * Lets `attempt` read the session and decide, and decide anew while it is busy. Operations on one session take turns
 * by it.
 */
export async function whenFree<T>(
  { signals }: { signals: SessionSignals },
  sessionId: string,
  attempt: () => Promise<T | typeof BUSY>,
  { waitMs = WAIT_MS, late = () => stillBusy(waitMs) }: { waitMs?: number; late?: () => ApiError } = {},
): Promise<T> {
  const deadline = performance.now() + waitMs;
  let outcome = await attempt();
  while (outcome === BUSY) {
    if (performance.now() >= deadline) throw late();
    // Listening starts before the row is read again, so that no move falls between.
    const moved = signals.waitForMove(sessionId, POLL_MS);
    outcome = await attempt().catch(goneMeanwhile);
    if (outcome === BUSY) await moved;
  }
  return outcome;
}

/** It was there when the request came (wire.md 2). */
function goneMeanwhile(error: unknown): never {
  if (!(error instanceof SessionNotFound)) throw error;
  throw endedMeanwhile();
}

function stillBusy(waitMs: number): ApiError {
  return new ApiError(
    "session_not_live",
    `another operation has held the session for ${waitMs / 1000} s; try again`,
  );
}

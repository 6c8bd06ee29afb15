/** Calls to a session's machine whose answer tells how they ended. */

import type { Scope } from "../access/principal.ts";
import { ApiError } from "../errors/api-error.ts";
import { NodeError } from "../fleet/node-error.ts";
import type { MoveDeps } from "../moves/deps.ts";
import type { SessionRow } from "../sessions/store.ts";
import { type BrokenOffWords, brokenOff, pausedMeanwhile } from "./broken-off.ts";
import { type InUse, useMachine } from "./use-machine.ts";

/** The largest tree that is deleted in one call, on a slow disk. */
const CALL_MS = 300_000;

/** Something that may have been done when its answer breaks off: it is not called retryable, nor done again. */
export async function changeGuest<T>(
  deps: MoveDeps,
  scope: Scope,
  { sessionId, words, signal }: { sessionId: string; words: BrokenOffWords; signal?: AbortSignal },
  change: (session: SessionRow, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const until = withinTime(signal);
  const { result, release } = await useMachine(deps, scope, { sessionId }, async (session) => {
    try {
      return await change(session, until);
    } catch (error) {
      if (!(error instanceof NodeError) || isRefused(error)) throw error;
      throw await brokenOff(deps, session, words, error);
    }
  });
  release();
  return result;
}

export async function readGuest<T>(
  deps: MoveDeps,
  scope: Scope,
  { sessionId, signal }: { sessionId: string; signal?: AbortSignal },
  read: (session: SessionRow, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const until = withinTime(signal);
  const { result, release } = await openGuest(deps, scope, sessionId, (session) => read(session, until));
  release();
  return result;
}

/** The beginning of something that only reads: it may be asked for again, whatever became of it. */
export async function openGuest<T>(
  deps: MoveDeps,
  scope: Scope,
  sessionId: string,
  open: (session: SessionRow) => Promise<T>,
): Promise<InUse<T>> {
  return await useMachine(deps, scope, { sessionId }, async (session) => {
    try {
      return await open(session);
    } catch (error) {
      if (!(error instanceof NodeError)) throw error;
      // What the node says of a read that was under way when its machine was held.
      if (error.code === "agent_unavailable") throw (await pausedUnderRead(deps, session)) ?? error;
      if (isRefused(error) || error.failure === "garbled") throw error;
      throw await brokenRead(deps, session, error);
    }
  });
}

/** Nothing was done. */
function isRefused({ failure }: NodeError): boolean {
  return failure === "refused" || failure === "unreachable";
}

const READ_AGAIN: BrokenOffWords = {
  paused: "the session was paused while it was read; try again, which wakes it",
  exchanged: "the session was paused and woken, or restored, while it was read; try again",
  unknown: "the session's machine broke its answer off; try again",
};

async function pausedUnderRead(deps: MoveDeps, session: SessionRow): Promise<ApiError | undefined> {
  const error = await pausedMeanwhile(deps, session, READ_AGAIN);
  return error && new ApiError("session_not_live", error.message);
}

const RETRYABLE = { conflict: "session_not_live", internal: "session_unavailable" } as const;

async function brokenRead(deps: MoveDeps, session: SessionRow, cause: NodeError): Promise<ApiError> {
  const error = await brokenOff(deps, session, READ_AGAIN, cause);
  const code = error.code === "conflict" || error.code === "internal" ? RETRYABLE[error.code] : undefined;
  return code ? new ApiError(code, error.message, { cause }) : error;
}

function withinTime(signal: AbortSignal | undefined): AbortSignal {
  const time = AbortSignal.timeout(CALL_MS);
  return signal ? AbortSignal.any([signal, time]) : time;
}

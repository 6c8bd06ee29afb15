/** One call to a session's machine whose answer is its whole outcome. */
import type { Scope } from "../access/principal.ts";
import { NodeError } from "../fleet/node-error.ts";
import { ApiError } from "../http/api-error.ts";
import type { SessionRow } from "../sessions/store.ts";
import { type BrokenOffWords, brokenOff } from "./broken-off.ts";
import { type GuestDeps, useMachine } from "./use-machine.ts";

/** The largest tree that is deleted in one call, on a slow disk. */
const CALL_MS = 300_000;

interface Call {
  sessionId: string;
  /** What is told of a call that broke off and may have been done. Without words it only reads: it may be made again. */
  words?: BrokenOffWords;
  signal: AbortSignal;
}

export async function callGuest<T>(
  deps: GuestDeps,
  scope: Scope,
  { sessionId, words, signal }: Call,
  call: (session: SessionRow, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const until = AbortSignal.any([signal, AbortSignal.timeout(CALL_MS)]);
  const { result, release } = await useMachine(deps, scope, { sessionId }, async (session) => {
    try {
      return await call(session, until);
    } catch (error) {
      if (!(error instanceof NodeError) || hasDoneNothing(error, words === undefined)) throw error;
      throw words ? await brokenOff(deps, session, words, error) : await brokenRead(deps, session, error);
    }
  });
  release();
  return result;
}

/** An answer that cannot be understood is nothing only when nothing was asked to be done. */
function hasDoneNothing({ failure }: NodeError, onlyReads: boolean): boolean {
  return failure === "refused" || failure === "unreachable" || (failure === "garbled" && onlyReads);
}

const READ_AGAIN: BrokenOffWords = {
  paused: "the session was paused while it was read; try again, which wakes it",
  exchanged: "the session was paused and woken, or restored, while it was read; try again",
  unknown: "the session's machine broke its answer off; try again",
};
const RETRYABLE = { conflict: "session_not_live", internal: "session_unavailable" } as const;

async function brokenRead(deps: GuestDeps, session: SessionRow, cause: NodeError): Promise<ApiError> {
  const error = await brokenOff(deps, session, READ_AGAIN, cause);
  const code = error.code === "conflict" || error.code === "internal" ? RETRYABLE[error.code] : undefined;
  return code ? new ApiError(code, error.message, { cause }) : error;
}

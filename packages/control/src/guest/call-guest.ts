/** Calls into a session's machine, with errors that say whether the call may be repeated. */
import type { Scope } from "../access/principal.ts";
import { ApiError } from "../errors/api-error.ts";
import { NodeError } from "../fleet/node-error.ts";
import type { MoveDeps } from "../moves/deps.ts";
import type { SessionRow } from "../sessions/store.ts";
import { type BreakTexts, explainBreak, findPauseError } from "./explain-break.ts";
import { type InUse, useMachine } from "./use-machine.ts";

/** Time limit of a call: enough to delete the largest tree on a slow disk. */
const CALL_MS = 300_000;

/**
 * For operations that change something. When the answer breaks off, the change may have been made, so the error is not
 * retryable.
 */
export async function changeGuest<T>(
  deps: MoveDeps,
  scope: Scope,
  { sessionId, texts, signal }: { sessionId: string; texts: BreakTexts; signal?: AbortSignal },
  change: (session: SessionRow, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const until = withinTime(signal);
  const { result, release } = await useMachine(deps, scope, { sessionId }, async (session) => {
    try {
      return await change(session, until);
    } catch (error) {
      if (!(error instanceof NodeError) || isRefused(error)) throw error;
      throw await explainBreak(deps, session, texts, error);
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

/** Starts an operation that only reads. Reading can be repeated, so every error of a break is retryable. */
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
      // The node also answers this code for a read that was in flight when the machine was stopped for a pause.
      if (error.code === "agent_unavailable") throw (await pauseErrorOfRead(deps, session)) ?? error;
      if (isRefused(error) || error.failure === "garbled") throw error;
      throw await explainReadBreak(deps, session, error);
    }
  });
}

/** Whether the node did not start the call. */
function isRefused({ failure }: NodeError): boolean {
  return failure === "refused" || failure === "unreachable";
}

const READ_BREAK_TEXTS: BreakTexts = {
  paused: "the session was paused while it was read; try again, which wakes it",
  exchanged: "the session was paused and woken, or restored, while it was read; try again",
  unknown: "the session's machine broke its answer off; try again",
};

async function pauseErrorOfRead(deps: MoveDeps, session: SessionRow): Promise<ApiError | undefined> {
  const error = await findPauseError(deps, session, READ_BREAK_TEXTS);
  return error && new ApiError("session_not_live", error.message);
}

async function explainReadBreak(deps: MoveDeps, session: SessionRow, cause: NodeError): Promise<ApiError> {
  const error = await explainBreak(deps, session, READ_BREAK_TEXTS, cause);
  if (error.code === "conflict") return new ApiError("session_not_live", error.message, { cause });
  if (error.code === "internal") return new ApiError("session_unavailable", error.message, { cause });
  return error;
}

function withinTime(signal: AbortSignal | undefined): AbortSignal {
  const time = AbortSignal.timeout(CALL_MS);
  return signal ? AbortSignal.any([signal, time]) : time;
}

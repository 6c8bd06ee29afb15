/** Runs a command to its end, and answers with its output. */
import { type ExecResult, LIMITS } from "@vivarium/contract/api";
import type { Caller } from "../access/caller.ts";
import type { Scope } from "../access/principal.ts";
import { mayStillRun } from "../guest/explain-break.ts";
import { leaseSession } from "../leases/lease.ts";
import type { SessionRow } from "../sessions/store.ts";
import { collect, outputFields } from "./collect.ts";
import type { ExecDeps } from "./deps.ts";
import { type CommandInput, explainCommandBreak, startExec } from "./open-exec.ts";
import type { OutputQuota } from "./output-quota.ts";

/** Time to destroy a completed session. After that the sweep does it, in case this process has died. */
const COMPLETION_GRACE_MS = 10_000;
const neverAborted = new AbortController().signal;

export interface BufferedExec {
  input: CommandInput;
  by: Caller;
  reservation: OutputQuota;
  /** Limit of each of the two output streams. */
  limitBytes?: number;
}

/** Runs a command to its end and answers with its output. A client that goes away does not cancel it. */
export async function execBuffered(
  deps: ExecDeps,
  scope: Scope,
  sessionId: string,
  { input, by, reservation, limitBytes = LIMITS.execOutputBytes }: BufferedExec,
): Promise<{ session: SessionRow; result: ExecResult }> {
  const start = { sessionId, input, limitBytes, signal: neverAborted, by };
  const { session, restoreMs, frames } = await startExec(deps, scope, start);
  const collected = await collect(frames, { limitBytes, reservation }).catch(async (cause: unknown) => {
    const error = await explainCommandBreak(deps, session, cause);
    // A command that was paused with its session may still run; its lease ends the session.
    if (!mayStillRun(error)) await markCompleted(deps, session);
    throw error;
  });
  await markCompleted(deps, session);
  return {
    session,
    result: {
      ...outputFields(collected),
      ...(restoreMs !== undefined && { restore_ms: restoreMs }),
      sandbox_id: session.id,
    },
  };
}

/** Sets a short lease on a destroy_on_completion session, so that it ends even if this process dies now. */
export async function markCompleted(deps: ExecDeps, session: SessionRow): Promise<void> {
  deps.activity.touch(session.id);
  if (session.destroy_on_completion) {
    await leaseSession(deps.db, session.id, COMPLETION_GRACE_MS).catch(() => undefined);
  }
}

import { type ExecResult, LIMITS } from "@vivarium/contract/api";
import type { Scope } from "../access/principal.ts";
import type { Caller } from "../audit/caller.ts";
import { goesOn } from "../guest/broken-off.ts";
import { leaseSession } from "../sessions/lease.ts";
import type { SessionRow } from "../sessions/store.ts";
import { collect, outputFields } from "./collect.ts";
import {
  brokenOff,
  type CommandInput,
  type ExecDeps,
  execCall,
  type StartExecDeps,
  startExec,
} from "./open-exec.ts";
import type { OutputQuota } from "./output-quota.ts";

/** How long after a completed destroy_on_completion the sweep steps in for a process that died before destroying. */
const COMPLETION_GRACE_MS = 10_000;
const neverAborted = new AbortController().signal;

/** Runs a command to its end and answers with its output. A client that goes away does not cancel it. */
export async function execBuffered(
  deps: StartExecDeps,
  scope: Scope,
  {
    sessionId,
    input,
    by,
    room,
    limitBytes = LIMITS.execOutputBytes,
  }: {
    sessionId: string;
    input: CommandInput;
    by: Caller;
    room: OutputQuota;
    limitBytes?: number;
  },
): Promise<{ session: SessionRow; result: ExecResult }> {
  const call = (row: SessionRow) => execCall(row, input, limitBytes);
  const { session, restoreMs, frames } = await startExec(deps, scope, {
    sessionId,
    call,
    signal: neverAborted,
    by,
  });
  const collected = await collect(frames, { limitBytes, room }).catch(async (cause: unknown) => {
    const error = await brokenOff(deps, session, cause);
    // What was paused with its session ends by the time that it has left.
    if (!goesOn(error)) await markCompleted(deps, session);
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

/** Notes that a one-command session had its command, in the row, so that it ends even if this process dies now. */
export async function markCompleted(deps: ExecDeps, session: SessionRow): Promise<void> {
  deps.activity.touch(session.id);
  if (session.destroy_on_completion) {
    await leaseSession(deps.db, session.id, COMPLETION_GRACE_MS).catch(() => undefined);
  }
}

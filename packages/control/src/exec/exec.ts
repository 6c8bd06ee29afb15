import { type ExecResult, LIMITS } from "@vivarium/contract/api";
import type { Scope } from "../access/principal.ts";
import { leaseSession } from "../sessions/lease.ts";
import type { SessionSignals } from "../sessions/signals.ts";
import type { SessionRow } from "../sessions/store.ts";
import { collect, outputFields } from "./collect.ts";
import { brokenOff, type CommandInput, type ExecDeps, execCall, openExec } from "./open-exec.ts";
import { waitForLive } from "./wait-for-live.ts";

export type SessionExecDeps = ExecDeps & { signals: SessionSignals };

/** How long after a completed destroy_on_completion the sweep steps in for a process that died before destroying. */
const COMPLETION_GRACE_MS = 10_000;
const neverAborted = new AbortController().signal;

/** Runs a command to its end and answers with its output. A client that goes away does not cancel it. */
export async function execBuffered(
  deps: SessionExecDeps,
  scope: Scope,
  {
    sessionId,
    input,
    limitBytes = LIMITS.execOutputBytes,
  }: {
    sessionId: string;
    input: CommandInput;
    limitBytes?: number;
  },
): Promise<{ session: SessionRow; result: ExecResult }> {
  const session = await waitForLive(deps, scope, sessionId);
  const frames = await openExec(deps, session, execCall(session, input, limitBytes), neverAborted);
  try {
    const collected = await collect(frames, limitBytes);
    return { session, result: { ...outputFields(collected), sandbox_id: session.id } };
  } catch (cause) {
    throw await brokenOff(deps, session, cause);
  } finally {
    await markCompleted(deps, session);
  }
}

/** Notes that a one-command session had its command, in the row, so that it ends even if this process dies now. */
export async function markCompleted(deps: ExecDeps, session: SessionRow): Promise<void> {
  deps.activity.touch(session.id);
  if (session.destroy_on_completion) {
    await leaseSession(deps.db, session.id, COMPLETION_GRACE_MS).catch(() => undefined);
  }
}

/** Starts a command in a session's machine, and explains why a command did not start or broke off. */
import { LIMITS } from "@vivarium/contract/api";
import { type ExecEnd, FRAME, type Frame } from "@vivarium/contract/guest";
import type { ExecCall } from "@vivarium/contract/node";
import type { Caller } from "../access/caller.ts";
import type { Scope } from "../access/principal.ts";
import type { CommandEntry } from "../audit/command-log.ts";
import type { ApiError } from "../errors/api-error.ts";
import { apiErrorOfNode } from "../fleet/api-error-of-node.ts";
import { hasStartedNothing, NodeError } from "../fleet/node-error.ts";
import { type Environment, environmentOf } from "../guest/environment.ts";
import { type BreakDeps, type BreakTexts, explainBreak, findEndError } from "../guest/explain-break.ts";
import { useMachine } from "../guest/use-machine.ts";
import type { LiveSession } from "../guest/wait-for-live.ts";
import { revertLease } from "../leases/lease.ts";
import { machineIdOf } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import { endOf } from "./collect.ts";
import { extendCommandLease } from "./command-lease.ts";
import type { ExecDeps } from "./deps.ts";

export interface CommandInput {
  command: string[];
  cwd?: string | null;
  timeout_ms?: number | null;
}

interface ExecStart {
  sessionId: string;
  input: CommandInput;
  /** Limit of each of the two output streams. */
  limitBytes?: number;
  signal: AbortSignal;
  by: Caller;
}

/** The node call for a command. */
export function execCall(
  input: CommandInput,
  env: Record<string, string>,
  outputLimitBytes?: number,
): ExecCall {
  return {
    argv: input.command,
    ...(input.cwd != null && { cwd: input.cwd }),
    env,
    timeout_ms: input.timeout_ms ?? LIMITS.execTimeoutDefaultMs,
    ...(outputLimitBytes !== undefined && { output_limit_bytes: outputLimitBytes }),
  };
}

/**
 * Starts a command in the caller's session. Waits for the session, wakes it, and repeats that when a pause interrupts
 * the start. An error either means that nothing was started, or says that the command may have started.
 */
export async function startExec(
  deps: ExecDeps,
  scope: Scope,
  { sessionId, input, limitBytes, signal, by }: ExecStart,
): Promise<LiveSession & { frames: AsyncIterable<Frame> }> {
  const { result, release, ...live } = await useMachine(deps, scope, { sessionId }, async (session) => {
    const { env, secrets } = await environmentOf(deps, session);
    return { frames: await openUnderLease(deps, session, execCall(input, env, limitBytes), signal), secrets };
  });
  const { frames, secrets } = result;
  const command = { session: live.session, by, kind: "exec" as const, argv: input.command, secrets };
  return { ...live, frames: logAndRelease(frames, deps.commandLog.started(command), release) };
}

/** Extends the session's lease, then starts the command. If nothing was started, the lease is set back. */
async function openUnderLease(
  deps: ExecDeps,
  session: SessionRow,
  call: ExecCall,
  signal: AbortSignal,
): Promise<AsyncIterable<Frame>> {
  const lease = await extendCommandLease(deps.db, session, call.timeout_ms);
  try {
    return await deps.nodes.exec(machineIdOf(session), call, signal);
  } catch (error) {
    // The session can still run its one command.
    if (lease && hasStartedNothing(error))
      await revertLease(deps.db, session.id, lease).catch(() => undefined);
    if (!(error instanceof NodeError) || error.failure !== "broken") throw error;
    throw await explainBreak(deps, session, START_BREAK_TEXTS, error);
  }
}

/** Resolves once the command runs. An error means that nothing was started, or says that it may have started. */
export async function openExec(
  deps: ExecDeps,
  session: SessionRow,
  call: ExecCall,
  { signal, by, secrets }: { signal: AbortSignal; by: Caller } & Pick<Environment, "secrets">,
): Promise<AsyncIterable<Frame>> {
  deps.activity.touch(session.id);
  try {
    const frames = await deps.nodes.exec(machineIdOf(session), call, signal);
    return logAndRelease(
      frames,
      deps.commandLog.started({ session, by, kind: "run", argv: call.argv, secrets }),
    );
  } catch (error) {
    if (!(error instanceof NodeError)) throw error;
    // If the database is down, still report the original error: the command may have started, so it must not look
    // retryable.
    const ended = await findEndError(deps.db, session).catch(() => undefined);
    throw ended ?? apiErrorOfNode(error);
  }
}

/** Passes the frames on. Audits the command's end, or that the end is unknown, and releases the session. */
async function* logAndRelease(
  frames: AsyncIterable<Frame>,
  entry: CommandEntry,
  release?: () => void,
): AsyncGenerator<Frame> {
  try {
    for await (const frame of frames) {
      if (frame.type === FRAME.exit) logEnd(entry, endOf(frame.type, frame.payload));
      yield frame;
    }
  } finally {
    entry.lost();
    release?.();
  }
}

function logEnd(entry: CommandEntry, { exit_code, timed_out, duration_us }: ExecEnd): void {
  entry.ended({ exit_code, timed_out, duration_ms: Math.round(duration_us / 1000) });
}

/** The error for a command that had started and broke off. The command is never run again. */
export async function explainCommandBreak(
  deps: BreakDeps,
  session: SessionRow,
  cause: unknown,
): Promise<ApiError> {
  return await explainBreak(deps, session, BREAK_TEXTS, cause);
}

const BREAK_TEXTS: BreakTexts = {
  paused:
    "the session was paused while the command ran; the command goes on after the wake, its output is lost",
  exchanged: "the session was paused and woken, or restored, while the command ran; its output is lost",
  unknown: "the command had started, but the connection to its machine broke; how it ended is unknown",
};

/** For a command that the node received and did not confirm. */
const START_BREAK_TEXTS: BreakTexts = {
  paused:
    "the session was paused while the command was being started; it may have started, and then goes on after the wake, its output lost",
  exchanged:
    "the session was paused and woken, or restored, while the command was being started; it may have started, its output is lost",
  unknown: "the node broke the connection; whether the operation started is unknown",
};

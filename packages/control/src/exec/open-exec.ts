/** Starts a command in a session's machine and explains why one could not start, or broke off. */

import { LIMITS } from "@vivarium/contract/api";
import { type ExecEnd, FRAME, type Frame } from "@vivarium/contract/guest";
import type { ExecCall } from "@vivarium/contract/node";
import type { Scope } from "../access/principal.ts";
import type { Caller } from "../audit/caller.ts";
import type { CommandEntry, CommandLog } from "../audit/command-log.ts";
import type { ApiError } from "../errors/api-error.ts";
import { apiErrorOfNode } from "../fleet/api-error-of-node.ts";
import { NodeError } from "../fleet/node-error.ts";
import {
  type BrokenOffDeps,
  type BrokenOffWords,
  endedMeanwhile,
  brokenOff as explainBreak,
} from "../guest/broken-off.ts";
import { environmentOf } from "../guest/environment.ts";
import { useMachine } from "../guest/use-machine.ts";
import type { LiveSession } from "../guest/wait-for-live.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { machineIdOf } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import { endOf } from "./collect.ts";
import { hasStartedNothing, leaseCommand, takeBackLease } from "./command-lease.ts";

export type ExecDeps = MoveDeps & { commandLog: CommandLog };

interface OpenedExec {
  frames: AsyncIterable<Frame>;
}
type StartedExec = LiveSession & OpenedExec;

export interface CommandInput {
  command: string[];
  cwd?: string | null;
  timeout_ms?: number | null;
}

/** The node call for a command of this session. */
export function execCall(session: SessionRow, input: CommandInput, outputLimitBytes?: number): ExecCall {
  return {
    argv: input.command,
    ...(input.cwd != null && { cwd: input.cwd }),
    env: environmentOf(session),
    timeout_ms: input.timeout_ms ?? LIMITS.execTimeoutDefaultMs,
    ...(outputLimitBytes !== undefined && { output_limit_bytes: outputLimitBytes }),
  };
}

/**
 * Starts a command in the caller's session: waits for the session, wakes it, and does so again when it is paused under
 * the start. What it throws is certain to have started nothing, or says that it is not.
 */
export async function startExec(
  deps: ExecDeps,
  scope: Scope,
  {
    sessionId,
    call,
    signal,
    by,
  }: { sessionId: string; call: (row: SessionRow) => ExecCall; signal: AbortSignal; by: Caller },
): Promise<StartedExec> {
  const { result, release, ...live } = await useMachine(deps, scope, { sessionId }, (session) =>
    openLeased(deps, session, call(session), signal),
  );
  const { argv } = call(live.session);
  const entry = deps.commandLog.started({ session: live.session, by, kind: "exec", argv });
  return { ...live, ...result, frames: observe(result.frames, entry, release) };
}

/** A command that could not be started leaves the session as it was. */
async function openLeased(
  deps: ExecDeps,
  session: SessionRow,
  call: ExecCall,
  signal: AbortSignal,
): Promise<OpenedExec> {
  const lease = await leaseCommand(deps.db, session, call.timeout_ms);
  try {
    return { frames: await deps.nodes.exec(machineIdOf(session), call, signal) };
  } catch (error) {
    if (hasStartedNothing(error)) await takeBackLease(deps.db, session, lease);
    if (!(error instanceof NodeError) || error.failure !== "broken") throw error;
    throw await explainBreak(deps, session, START_WORDS, error);
  }
}

/** Resolves once the command runs. What it throws is certain to have started nothing, or says that it is not. */
export async function openExec(
  deps: ExecDeps,
  session: SessionRow,
  call: ExecCall,
  { signal, by }: { signal: AbortSignal; by: Caller },
): Promise<AsyncIterable<Frame>> {
  deps.activity.touch(session.id);
  try {
    const frames = await deps.nodes.exec(machineIdOf(session), call, signal);
    return observe(frames, deps.commandLog.started({ session, by, kind: "run", argv: call.argv }));
  } catch (error) {
    if (!(error instanceof NodeError)) throw error;
    // A store that is away must not make a start that nobody confirmed one that is tried again.
    const ended = await endedMeanwhile(deps.db, session).catch(() => undefined);
    throw ended ?? apiErrorOfNode(error);
  }
}

/** Lets the session go, and tells the log how the command ended, or that nobody saw its end. */
async function* observe(
  frames: AsyncIterable<Frame>,
  entry: CommandEntry,
  release?: () => void,
): AsyncGenerator<Frame> {
  try {
    for await (const frame of frames) {
      if (frame.type === FRAME.exit) noteEnd(entry, endOf(frame.type, frame.payload));
      yield frame;
    }
  } finally {
    entry.lost();
    release?.();
  }
}

function noteEnd(entry: CommandEntry, { exit_code, timed_out, duration_us }: ExecEnd): void {
  entry.ended({ exit_code, timed_out, duration_ms: Math.round(duration_us / 1000) });
}

/** The error of a command that had started and did not come to its end. It is never run again. */
export async function brokenOff(deps: BrokenOffDeps, session: SessionRow, cause: unknown): Promise<ApiError> {
  return await explainBreak(deps, session, WORDS, cause);
}

const WORDS: BrokenOffWords = {
  paused:
    "the session was paused while the command ran; the command goes on after the wake, its output is lost",
  exchanged: "the session was paused and woken, or restored, while the command ran; its output is lost",
  unknown: "the command had started, but the connection to its machine broke; how it ended is unknown",
};

/** Of a command that was handed over, and whose start nobody confirmed. */
const START_WORDS: BrokenOffWords = {
  paused:
    "the session was paused while the command was being started; it may have started, and then goes on after the wake, its output lost",
  exchanged:
    "the session was paused and woken, or restored, while the command was being started; it may have started, its output is lost",
  unknown: "the node broke the connection; whether the operation started is unknown",
};

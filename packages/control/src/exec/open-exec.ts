/** Starts a command in a session's machine and explains why one could not start, or broke off. */
import { LIMITS } from "@vivarium/contract/api";
import type { Frame } from "@vivarium/contract/guest";
import type { ExecCall } from "@vivarium/contract/node";
import type { Scope } from "../access/principal.ts";
import type { Database } from "../db/pool.ts";
import { apiErrorOfNode } from "../fleet/api-error-of-node.ts";
import type { NodeClient } from "../fleet/node-client.ts";
import { NodeError } from "../fleet/node-error.ts";
import { ApiError } from "../http/api-error.ts";
import { stopsGuest } from "../operations/operation.ts";
import { BUSY, whenFree } from "../operations/when-free.ts";
import type { Activity } from "../sessions/activity.ts";
import { rereadSession } from "../sessions/get.ts";
import { notUsable } from "../sessions/not-usable.ts";
import type { SessionSignals } from "../sessions/signals.ts";
import { machineIdOf } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import type { WakeDeps } from "../sessions/wake.ts";
import { hasStartedNothing, leaseCommand, takeBackLease } from "./command-lease.ts";
import { type LiveSession, waitForLive } from "./wait-for-live.ts";

export interface ExecDeps {
  db: Database;
  nodes: NodeClient;
  activity: Activity;
}

export type BrokenOffDeps = ExecDeps & { signals: SessionSignals };
export type StartExecDeps = ExecDeps & WakeDeps;

interface OpenedExec {
  frames: AsyncIterable<Frame>;
  /** What was written down for the case that nobody sees the command end. */
  lease: Date | undefined;
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
    env: { VIVARIUM_SESSION_ID: session.id, ...session.env },
    timeout_ms: input.timeout_ms ?? LIMITS.execTimeoutDefaultMs,
    ...(outputLimitBytes !== undefined && { output_limit_bytes: outputLimitBytes }),
  };
}

/** What a refused start says when the machine stands still, or gave way to another, under the request. */
const MOVED_CODES = new Set(["machine_held", "machine_gone", "machine_not_found"]);
const MOVES = 5;

/**
 * Starts a command in the caller's session: waits for the session, wakes it, and does so again when it is paused under
 * the start. What it throws is certain to have started nothing, or says that it is not.
 */
export async function startExec(
  deps: StartExecDeps,
  scope: Scope,
  {
    sessionId,
    call,
    signal,
  }: { sessionId: string; call: (row: SessionRow) => ExecCall; signal: AbortSignal },
): Promise<StartedExec> {
  // Held before the row is read: a pause for idleness that claims the row later sees it.
  const release = deps.activity.hold(sessionId);
  try {
    for (let moves = 0; ; moves++) {
      const live = await waitForLive(deps, scope, sessionId);
      const opened = await openLeased(deps, live.session, call(live.session), signal).catch(
        async (error: unknown) => {
          if (moves < MOVES && (await hasMoved(deps.db, live.session, error))) return undefined;
          throw error;
        },
      );
      if (opened) return { ...live, ...opened, frames: releaseAfter(opened.frames, release) };
    }
  } catch (error) {
    release();
    throw error;
  }
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
    return { lease, frames: await openExec(deps, session, call, signal) };
  } catch (error) {
    if (hasStartedNothing(error)) await takeBackLease(deps.db, session, lease);
    throw error;
  }
}

/** Resolves once the command runs. What it throws is certain to have started nothing, or says that it is not. */
export async function openExec(
  deps: ExecDeps,
  session: SessionRow,
  call: ExecCall,
  signal: AbortSignal,
): Promise<AsyncIterable<Frame>> {
  deps.activity.touch(session.id);
  try {
    return await deps.nodes.exec(machineIdOf(session), call, signal);
  } catch (error) {
    if (!(error instanceof NodeError)) throw error;
    throw (await endedMeanwhile(deps.db, session)) ?? apiErrorOfNode(error);
  }
}

/** True when the command did not start because the session is being paused, or was. */
async function hasMoved(db: Database, session: SessionRow, error: unknown): Promise<boolean> {
  const cause = error instanceof ApiError ? error.cause : undefined;
  if (!(cause instanceof NodeError) || !MOVED_CODES.has(cause.code ?? "")) return false;
  const now = await rereadSession(db, session.id);
  return now !== undefined && (stopsGuest(now.op) || !isSameStretch(now, session));
}

async function* releaseAfter(frames: AsyncIterable<Frame>, release: () => void): AsyncGenerator<Frame> {
  try {
    yield* frames;
  } finally {
    release();
  }
}

/** The error of a command that had started and did not come to its end. It is never run again. */
export async function brokenOff(deps: BrokenOffDeps, session: SessionRow, cause: unknown): Promise<ApiError> {
  return (
    (await pausedMeanwhile(deps, session)) ??
    (await endedMeanwhile(deps.db, session)) ??
    new ApiError(
      "internal",
      "the command had started, but the connection to its machine broke; how it ended is unknown",
      {
        cause,
      },
    )
  );
}

/** A pause, or a restore, that is under way explains the break only once it is done. */
async function pausedMeanwhile(deps: BrokenOffDeps, session: SessionRow): Promise<ApiError | undefined> {
  const now = await whenFree(deps, session.id, async () => {
    const row = await rereadSession(deps.db, session.id);
    return row && row.state !== "destroyed" && stopsGuest(row.op) ? BUSY : row;
  });
  if (!now || isSameStretch(now, session) || !["live", "paused"].includes(now.state)) return undefined;
  return new ApiError("conflict", now.state === "paused" ? PAUSED : EXCHANGED);
}

/** A command whose session was paused is not over. */
export function goesOn(error: ApiError): boolean {
  return error.code === "conflict";
}

const PAUSED =
  "the session was paused while the command ran; the command goes on after the wake, its output is lost";
const EXCHANGED = "the session was paused and woken, or restored, while the command ran; its output is lost";

/** The machine that the session had then is the one it has now. */
function isSameStretch(now: SessionRow, then: SessionRow): boolean {
  return now.state === then.state && now.incarnation === then.incarnation;
}

/** A session that was destroyed, or failed, under a request explains the request's failure. */
async function endedMeanwhile(db: Database, session: SessionRow): Promise<ApiError | undefined> {
  const now = await rereadSession(db, session.id);
  if (!now || now.state === "destroyed") {
    return new ApiError("session_ended", "the session was destroyed while the request was in flight");
  }
  return now.state === "live" || now.state === "paused" ? undefined : notUsable(now);
}

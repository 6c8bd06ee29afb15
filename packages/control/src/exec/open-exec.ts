/** Starts a command in a session's machine and explains why one could not start, or broke off. */
import { LIMITS } from "@vivarium/contract/api";
import type { Frame } from "@vivarium/contract/guest";
import type { ExecCall } from "@vivarium/contract/node";
import type { Database } from "../db/pool.ts";
import { apiErrorOfNode } from "../fleet/api-error-of-node.ts";
import type { NodeClient } from "../fleet/node-client.ts";
import { NodeError } from "../fleet/node-error.ts";
import { ApiError } from "../http/api-error.ts";
import type { Activity } from "../sessions/activity.ts";
import { rereadSession } from "../sessions/get.ts";
import { machineIdOf } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import { notUsable } from "./wait-for-live.ts";

export interface ExecDeps {
  db: Database;
  nodes: NodeClient;
  activity: Activity;
}

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

/** The error of a command that had started and did not come to its end. It is never run again. */
export async function brokenOff(deps: ExecDeps, session: SessionRow, cause: unknown): Promise<ApiError> {
  return (
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

/** A session that was destroyed, or failed, under a request explains the request's failure. */
async function endedMeanwhile(db: Database, session: SessionRow): Promise<ApiError | undefined> {
  const now = await rereadSession(db, session.id);
  if (!now || now.state === "destroyed") {
    return new ApiError("session_ended", "the session was destroyed while the request was in flight");
  }
  return now.state === "live" ? undefined : notUsable(now);
}

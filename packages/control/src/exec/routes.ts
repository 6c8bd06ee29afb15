/** Routes that run commands, in one session or in several. */
import { BatchExecRequest, BatchExecResult, ExecRequest, ExecResult, LIMITS } from "@vivarium/contract/api";
import type { FastifyReply } from "fastify";
import { z } from "zod";
import { type Caller, callerOf } from "../access/caller.ts";
import { type Scope, scopeOf } from "../access/principal.ts";
import { principalOf } from "../http/authenticate.ts";
import { requireOwnSessions } from "../http/capabilities.ts";
import { errorAnswers } from "../http/error-answers.ts";
import { onceClosed } from "../http/once-closed.ts";
import { queryFlag } from "../http/query.ts";
import type { Server } from "../http/server.ts";
import { clientGone, EventStream } from "../http/sse.ts";
import { destroySession } from "../moves/destroy.ts";
import { getSession } from "../sessions/get.ts";
import { SessionParams } from "../sessions/params.ts";
import type { SessionRow } from "../sessions/store.ts";
import { execBatch } from "./batch.ts";
import type { ExecDeps } from "./deps.ts";
import { execBuffered, markCompleted } from "./exec.ts";
import { type CommandInput, startExec } from "./open-exec.ts";
import { returnOnceAnswered } from "./output-quota.ts";
import { streamFrames } from "./stream.ts";

const ExecQuery = z.object({
  stream: queryFlag.optional(),
  timing: queryFlag.optional().meta({ description: "include the timings of a wake, if there was one" }),
});
const tags = ["Exec"];

export function addExecRoutes(server: Server, deps: ExecDeps): void {
  const one = {
    operationId: "exec",
    summary: "Run a command; with stream=true its output comes as server-sent events",
    tags,
    params: SessionParams,
    querystring: ExecQuery,
    body: ExecRequest,
    response: {
      200: ExecResult,
      ...errorAnswers("not_found", "conflict", "session_ended", "rate_limited", "bad_gateway"),
    },
  };
  server.post("/v1/sessions/:id/exec", { schema: one }, async (request, reply) => {
    const principal = principalOf(request);
    const { id } = request.params;
    const call = { input: request.body, by: callerOf(principal, request) };
    const scope = scopeOf(principal);
    if (request.query.stream) return await execStreamed(deps, scope, { sessionId: id, ...call }, reply);
    const reservation = deps.outputQuotas.reserve(scope.orgId, 2 * LIMITS.execOutputBytes);
    const { session, result } = await execBuffered(deps, scope, id, { ...call, reservation }).finally(() =>
      returnOnceAnswered(reservation, reply.raw),
    );
    destroyOnceAnswered(deps, [session], reply);
    const hasTiming = request.query.timing && result.restore_ms !== undefined;
    return hasTiming && session.timings ? { ...result, timing: session.timings } : result;
  });
  const batch = {
    operationId: "execBatch",
    summary: "Run one command in several sessions",
    tags,
    body: BatchExecRequest,
    response: { 200: BatchExecResult, ...errorAnswers("forbidden") },
  };
  server.post("/v1/sessions/batch/exec", { schema: batch }, async (request, reply) => {
    const { session_ids: sessionIds, ...input } = request.body;
    requireOwnSessions(request, sessionIds);
    const principal = principalOf(request);
    const reservation = deps.outputQuotas.reserve(principal.orgId, LIMITS.batchOutputTotalBytes);
    const exec = { input, by: callerOf(principal, request), reservation };
    const { result, sessions } = await execBatch(deps, scopeOf(principal), sessionIds, exec).finally(() =>
      returnOnceAnswered(reservation, reply.raw),
    );
    destroyOnceAnswered(deps, sessions, reply);
    return result;
  });
}

/** Streams a command's output. A failure before it runs is an ordinary answer, a later one an `error` event. */
async function execStreamed(
  deps: ExecDeps,
  scope: Scope,
  { sessionId, input, by }: { sessionId: string; input: CommandInput; by: Caller },
  reply: FastifyReply,
): Promise<FastifyReply> {
  const gone = clientGone(reply);
  const start = { sessionId, input, signal: gone, by };
  const { session, frames } = await startExec(deps, scope, start).catch(async (error: unknown) => {
    // The client left while the command was being started. That counts as the session's one command.
    if (gone.aborted) await completeAfterLeave(deps, scope, sessionId);
    throw error;
  });
  const events = new EventStream(reply);
  let isOver = true;
  destroyOnceAnswered(deps, [session], reply, () => isOver);
  try {
    isOver = await streamFrames(deps, session, frames, events);
  } finally {
    // A command that was paused with its session may still run; its lease ends the session.
    if (isOver) await markCompleted(deps, session);
    events.end();
  }
  return reply;
}

async function completeAfterLeave(deps: ExecDeps, scope: Scope, sessionId: string): Promise<void> {
  const session = await getSession(deps.db, scope, sessionId);
  await markCompleted(deps, session);
  if (session.destroy_on_completion) await destroySession(deps, session, { event: "first_exec_completed" });
}

/** Destroys `destroy_on_completion` sessions once the answer is sent, or the client is gone. */
function destroyOnceAnswered(
  deps: ExecDeps,
  sessions: SessionRow[],
  reply: FastifyReply,
  isOver = () => true,
): void {
  for (const session of sessions.filter((row) => row.destroy_on_completion)) {
    const destroy = () => {
      if (!isOver()) return;
      destroySession(deps, session, { event: "first_exec_completed" }).catch((err: unknown) =>
        deps.log.warn(
          { err, session_id: session.id },
          "a completed session could not be destroyed; the sweep does it",
        ),
      );
    };
    onceClosed(reply.raw, destroy);
  }
}

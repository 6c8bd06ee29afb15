import { ProcessInfo, ProcessList, ProcessLogs, ProcessStart } from "@vivarium/contract/api";
import type { FastifyReply, FastifyRequest } from "fastify";
import { z } from "zod";
import { scopeOf } from "../access/principal.ts";
import { callerOf } from "../audit/caller.ts";
import { principalOf } from "../http/authenticate.ts";
import { errorAnswers } from "../http/error-answers.ts";
import { queryFlag } from "../http/query.ts";
import type { Server } from "../http/server.ts";
import { clientGone, EventStream } from "../http/sse.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { SessionParams } from "../sessions/params.ts";
import { openFollow, relayFollow } from "./follow.ts";
import { readLogs } from "./logs.ts";
import { endProcess, getProcess, listProcesses } from "./read.ts";
import { type ProcessDeps, startProcess } from "./start.ts";

const PATH = "/v1/sessions/:id/processes";
const LogsQuery = z.object({ follow: queryFlag.optional() });
const ProcessParams = SessionParams.extend({ name: z.string() });
const tags = ["Processes"];
const refusals = errorAnswers(
  "forbidden",
  "not_found",
  "conflict",
  "session_ended",
  "rate_limited",
  "bad_gateway",
);

/** The caller's scope, and the call with its signal. */
function callOf(request: FastifyRequest<{ Params: { id: string; name: string } }>, reply: FastifyReply) {
  const { id: sessionId, name } = request.params;
  return { scope: scopeOf(principalOf(request)), call: { sessionId, name, signal: clientGone(reply) } };
}

export function addProcessRoutes(server: Server, deps: ProcessDeps): void {
  addProcesses(server, deps);
  addOneProcess(server, deps);
  addLogs(server, deps);
}

function addProcesses(server: Server, deps: ProcessDeps): void {
  const start = {
    operationId: "startProcess",
    summary: "Start a named process, which outlives the request",
    tags,
    params: SessionParams,
    body: ProcessStart,
    response: { 200: ProcessInfo, ...refusals },
  };
  server.post(PATH, { schema: start }, async (request) => {
    const principal = principalOf(request);
    const by = callerOf(principal, request);
    const call = { sessionId: request.params.id, input: request.body, by };
    return await startProcess(deps, scopeOf(principal), call);
  });
  const list = {
    operationId: "listProcesses",
    summary:
      "List named processes, running and exited, oldest first; an exited one stays until its name is used again",
    tags,
    params: SessionParams,
    response: { 200: ProcessList, ...refusals },
  };
  server.get(PATH, { schema: list }, async (request, reply) => {
    const call = { sessionId: request.params.id, signal: clientGone(reply) };
    return await listProcesses(deps, scopeOf(principalOf(request)), call);
  });
}

function addOneProcess(server: Server, deps: MoveDeps): void {
  const read = {
    operationId: "getProcess",
    summary: "Read a named process",
    tags,
    params: ProcessParams,
    response: { 200: ProcessInfo, ...refusals },
  };
  server.get(`${PATH}/:name`, { schema: read }, async (request, reply) => {
    const { scope, call } = callOf(request, reply);
    return await getProcess(deps, scope, call);
  });
  const end = {
    operationId: "endProcess",
    summary: "End a named process: SIGTERM, after 5 seconds SIGKILL; answers once it has exited",
    tags,
    params: ProcessParams,
    response: { 200: ProcessInfo, ...refusals },
  };
  server.delete(`${PATH}/:name`, { schema: end }, async (request) => {
    const { id: sessionId, name } = request.params;
    return await endProcess(deps, scopeOf(principalOf(request)), { sessionId, name });
  });
}

function addLogs(server: Server, deps: MoveDeps): void {
  const logs = {
    operationId: "readProcessLogs",
    summary: "Read the last output of a process; with follow=true all kept output, then new output",
    tags,
    params: ProcessParams,
    querystring: LogsQuery,
    response: { 200: ProcessLogs, ...refusals },
  };
  server.get(`${PATH}/:name/logs`, { schema: logs }, async (request, reply) => {
    const { scope, call } = callOf(request, reply);
    if (!request.query.follow) return await readLogs(deps, scope, call);
    const follow = await openFollow(deps, scope, call);
    await relayFollow(deps, follow, new EventStream(reply));
    return reply;
  });
}

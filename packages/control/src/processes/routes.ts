/** Routes of named processes. */
import { ProcessInfo, ProcessList, ProcessLogs, ProcessStart } from "@vivarium/contract/api";
import { z } from "zod";
import { callerOf } from "../access/caller.ts";
import { scopeOf } from "../access/principal.ts";
import { machineCall, machineSchema } from "../guest/routes.ts";
import { principalOf } from "../http/authenticate.ts";
import { queryFlag } from "../http/query.ts";
import type { Server } from "../http/server.ts";
import { EventStream } from "../http/sse.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { SessionParams } from "../sessions/params.ts";
import { openFollow, relayFollow } from "./follow.ts";
import { readLogs } from "./logs.ts";
import { callProcess, listProcesses } from "./read.ts";
import { type ProcessDeps, startProcess } from "./start.ts";

const PATH = "/v1/sessions/:id/processes";
const LogsQuery = z.object({ follow: queryFlag.optional() });
const ProcessParams = SessionParams.extend({ name: z.string() });
const TAG = "Processes";

export function addProcessRoutes(server: Server, deps: ProcessDeps): void {
  addProcesses(server, deps);
  addOneProcess(server, deps);
  addLogs(server, deps);
}

function addProcesses(server: Server, deps: ProcessDeps): void {
  const start = {
    ...machineSchema(TAG, ProcessInfo),
    operationId: "startProcess",
    summary: "Start a named process, which outlives the request",
    body: ProcessStart,
  };
  server.post(PATH, { schema: start }, async (request) => {
    const principal = principalOf(request);
    const by = callerOf(principal, request);
    const call = { sessionId: request.params.id, input: request.body, by };
    return await startProcess(deps, scopeOf(principal), call);
  });
  const list = {
    ...machineSchema(TAG, ProcessList),
    operationId: "listProcesses",
    summary:
      "List named processes, running and exited, oldest first; an exited one stays until its name is used again",
  };
  server.get(PATH, { schema: list }, async (request, reply) =>
    listProcesses(deps, ...machineCall(request, reply, {})),
  );
}

function addOneProcess(server: Server, deps: MoveDeps): void {
  const read = {
    ...machineSchema(TAG, ProcessInfo),
    params: ProcessParams,
    operationId: "getProcess",
    summary: "Read a named process",
  };
  server.get(`${PATH}/:name`, { schema: read }, async (request, reply) => {
    const [scope, call] = machineCall(request, reply, { name: request.params.name });
    return await callProcess(deps, scope, "GET", call);
  });
  const end = {
    ...machineSchema(TAG, ProcessInfo),
    params: ProcessParams,
    operationId: "endProcess",
    summary: "End a named process: SIGTERM, after 5 seconds SIGKILL; answers once it has exited",
  };
  server.delete(`${PATH}/:name`, { schema: end }, async (request) => {
    const { id: sessionId, name } = request.params;
    return await callProcess(deps, scopeOf(principalOf(request)), "DELETE", { sessionId, name });
  });
}

function addLogs(server: Server, deps: MoveDeps): void {
  const logs = {
    ...machineSchema(TAG, ProcessLogs),
    params: ProcessParams,
    operationId: "readProcessLogs",
    summary: "Read the last output of a process; with follow=true all kept output, then new output",
    querystring: LogsQuery,
  };
  server.get(`${PATH}/:name/logs`, { schema: logs }, async (request, reply) => {
    const call = machineCall(request, reply, { name: request.params.name });
    if (!request.query.follow) return await readLogs(deps, ...call);
    const follow = await openFollow(deps, ...call);
    await relayFollow(deps, follow, new EventStream(reply));
    return reply;
  });
}

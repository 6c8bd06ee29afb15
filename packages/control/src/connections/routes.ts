/** Routes of Connections. */
import {
  ConnectionCreate,
  ConnectionList,
  ConnectionReplace,
  ConnectionStatus,
} from "@vivarium/contract/api";
import { z } from "zod";
import { callerOf } from "../access/caller.ts";
import { scopeOf } from "../access/principal.ts";
import { toStatus } from "../connection-records/status.ts";
import { listConnections } from "../connection-records/store.ts";
import { principalOf } from "../http/authenticate.ts";
import { errorAnswers } from "../http/error-answers.ts";
import type { Server } from "../http/server.ts";
import { getReadable } from "../sessions/get.ts";
import { SessionParams } from "../sessions/params.ts";
import { bindConnection } from "./bind.ts";
import type { ConnectionDeps } from "./deps.ts";
import { replaceConnection } from "./replace.ts";
import { revokeConnection } from "./revoke.ts";

const tags = ["Connections"];
const params = SessionParams;
const named = SessionParams.extend({ name: z.string() });
const OF_CHANGES = ["forbidden", "not_found", "conflict", "session_not_live", "session_ended"] as const;

export function addConnectionRoutes(server: Server, deps: ConnectionDeps): void {
  const list = {
    operationId: "listConnections",
    summary: "List a session's Connections, oldest first, those that were revoked included",
    tags,
    params,
    response: { 200: ConnectionList, ...errorAnswers("not_found", "conflict") },
  };
  server.get("/v1/sessions/:id/connections", { schema: list }, async (request) => {
    const { id } = await getReadable(deps.db, scopeOf(principalOf(request)), request.params.id);
    return { connections: (await listConnections(deps.db, [id])).map(toStatus) };
  });

  const bind = {
    operationId: "createConnection",
    summary: "Bind a credential to an origin; it is in force when the call answers, and wakes nothing",
    tags,
    params,
    body: ConnectionCreate,
    response: { 201: ConnectionStatus, ...errorAnswers(...OF_CHANGES, "unavailable") },
  };
  server.post("/v1/sessions/:id/connections", { schema: bind }, async (request, reply) => {
    const principal = principalOf(request);
    const input = { id: request.params.id, body: request.body, by: callerOf(principal, request) };
    return await reply.status(201).send(await bindConnection(deps, scopeOf(principal), input));
  });

  const replace = {
    operationId: "replaceConnection",
    summary: "Replace a Connection's credential, rules and time; requests under the old credential are cut",
    tags,
    params: named,
    body: ConnectionReplace,
    response: { 200: ConnectionStatus, ...errorAnswers(...OF_CHANGES) },
  };
  server.put("/v1/sessions/:id/connections/:name", { schema: replace }, async (request) => {
    const principal = principalOf(request);
    const input = { ...request.params, body: request.body, by: callerOf(principal, request) };
    return await replaceConnection(deps, scopeOf(principal), input);
  });

  const revoke = {
    operationId: "revokeConnection",
    summary: "Revoke a Connection: the credential is deleted, and its origin is refused from then on",
    tags,
    params: named,
    response: {
      204: z.void().meta({ description: "Revoked" }),
      ...errorAnswers("forbidden", "not_found", "conflict"),
    },
  };
  server.delete("/v1/sessions/:id/connections/:name", { schema: revoke }, async (request, reply) => {
    const principal = principalOf(request);
    const input = { ...request.params, by: callerOf(principal, request) };
    await revokeConnection(deps, scopeOf(principal), input);
    return await reply.status(204).send();
  });
}

/** Routes of API keys. */
import { ApiKeyCreate, ApiKeyCreated, ApiKeyList } from "@vivarium/contract/api";
import { z } from "zod";
import { callerOf } from "../access/caller.ts";
import { scopeOf } from "../access/principal.ts";
import { checkProjectOfBody } from "../access/resolve-project.ts";
import { principalOf } from "../http/authenticate.ts";
import { errorAnswers } from "../http/error-answers.ts";
import type { Server } from "../http/server.ts";
import { createKey } from "./create.ts";
import type { KeyDeps } from "./deps.ts";
import { toKeyRecord } from "./record.ts";
import { revokeKey } from "./revoke.ts";
import { listKeys } from "./store.ts";

const tags = ["Keys"];

export function addKeyRoutes(server: Server, deps: KeyDeps): void {
  const list = {
    operationId: "listApiKeys",
    summary: "List the API keys that are not revoked, newest first",
    tags,
    response: { 200: ApiKeyList, ...errorAnswers() },
  };
  server.get("/v1/api-keys", { schema: list }, async (request) => ({
    api_keys: (await listKeys(deps.db, scopeOf(principalOf(request)))).map(toKeyRecord),
  }));
  const create = {
    operationId: "createApiKey",
    summary: "Make an API key; the answer is the only one that shows it",
    tags,
    body: ApiKeyCreate,
    response: { 201: ApiKeyCreated, ...errorAnswers("forbidden", "not_found", "conflict") },
  };
  server.post(
    "/v1/api-keys",
    {
      schema: create,
      preValidation: async (request) => checkProjectOfBody(principalOf(request), request.body),
    },
    async (request, reply) => {
      const principal = principalOf(request);
      const by = callerOf(principal, request);
      const created = await createKey(deps, principal, { body: request.body, by });
      return reply.status(201).header("cache-control", "no-store").send(created);
    },
  );
  const revoke = {
    operationId: "revokeApiKey",
    summary: "Revoke an API key; its open streams and connections end",
    tags,
    params: z.object({ kid: z.string() }),
    response: {
      204: z.void().meta({ description: "Revoked" }),
      ...errorAnswers("forbidden", "not_found", "conflict"),
    },
  };
  server.delete("/v1/api-keys/:kid", { schema: revoke }, async (request, reply) => {
    const own = request.openRequest;
    const principal = principalOf(request);
    const by = callerOf(principal, request);
    await revokeKey(deps, principal, { id: request.params.kid, own, by });
    return await reply.status(204).send();
  });
}

/** Routes of credentials for registries. */
import { RegistryCredential, RegistryCredentialCreate, RegistryCredentialList } from "@vivarium/contract/api";
import { z } from "zod";
import { callerOf } from "../access/caller.ts";
import { scopeOf } from "../access/principal.ts";
import { principalOf } from "../http/authenticate.ts";
import { errorAnswers } from "../http/error-answers.ts";
import type { Server } from "../http/server.ts";
import { createCredential } from "./create.ts";
import { deleteCredential } from "./delete.ts";
import type { RegistryDeps } from "./deps.ts";
import { showCredential } from "./record.ts";
import { listCredentialRows } from "./store.ts";

const tags = ["Registry credentials"];
const PATH = "/v1/registry-credentials";

export function addRegistryRoutes(server: Server, deps: RegistryDeps): void {
  const list = {
    operationId: "listRegistryCredentials",
    summary: "List the credentials for registries, newest first, without their secrets",
    tags,
    response: { 200: RegistryCredentialList, ...errorAnswers() },
  };
  server.get(PATH, { schema: list }, async (request) => {
    const rows = await listCredentialRows(deps.db, scopeOf(principalOf(request)));
    return { credentials: await Promise.all(rows.map((row) => showCredential(deps, row))) };
  });
  const create = {
    operationId: "createRegistryCredential",
    summary: "Store a credential for a registry of images; its secret is not shown again",
    tags,
    body: RegistryCredentialCreate,
    response: { 201: RegistryCredential, ...errorAnswers("conflict") },
  };
  server.post(PATH, { schema: create }, async (request, reply) => {
    const principal = principalOf(request);
    const input = { body: request.body, by: callerOf(principal, request) };
    return await reply.status(201).send(await createCredential(deps, principal, input));
  });
  const remove = {
    operationId: "deleteRegistryCredential",
    summary: "Delete a credential for a registry; without one of this name, nothing happens",
    tags,
    params: z.object({ name: z.string() }),
    response: { 204: z.void().meta({ description: "Deleted, or not there" }), ...errorAnswers() },
  };
  server.delete(`${PATH}/:name`, { schema: remove }, async (request, reply) => {
    const principal = principalOf(request);
    const input = { name: request.params.name, by: callerOf(principal, request) };
    await deleteCredential(deps, scopeOf(principal), input);
    return await reply.status(204).send();
  });
}

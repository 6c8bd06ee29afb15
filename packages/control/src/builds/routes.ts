/** Routes of imports, which make templates of container images. */
import { BuildLines, Template, TemplateImport } from "@vivarium/contract/api";
import { z } from "zod";
import { callerOf } from "../access/caller.ts";
import { scopeOf } from "../access/principal.ts";
import { principalOf } from "../http/authenticate.ts";
import { errorAnswers } from "../http/error-answers.ts";
import type { Server } from "../http/server.ts";
import type { BuildDeps } from "./deps.ts";
import { importTemplate } from "./import.ts";
import { readLog } from "./read-log.ts";

const tags = ["Templates"];

export function addBuildRoutes(server: Server, deps: BuildDeps): void {
  const create = {
    operationId: "importTemplate",
    summary: "Make a template of a container image; under a name that exists, its next version",
    tags,
    body: TemplateImport,
    response: { 202: Template, ...errorAnswers("forbidden", "conflict") },
  };
  server.post("/v1/templates", { schema: create }, async (request, reply) => {
    const principal = principalOf(request);
    const input = { body: request.body, by: callerOf(principal, request) };
    return await reply.status(202).send(await importTemplate(deps, principal, input));
  });
  const log = {
    operationId: "getTemplateLog",
    summary: "Read the log of a template's newest import, or of that of one version",
    tags,
    params: z.object({ name: z.string() }),
    response: { 200: BuildLines, ...errorAnswers("not_found") },
  };
  server.get("/v1/templates/:name/log", { schema: log }, (request) =>
    readLog(deps, scopeOf(principalOf(request)), request.params.name),
  );
}

import { Template, TemplateList, TemplateSave } from "@vivarium/contract/api";
import { z } from "zod";
import { callerOf } from "../access/caller.ts";
import { scopeOf } from "../access/principal.ts";
import { principalOf } from "../http/authenticate.ts";
import { errorAnswers } from "../http/error-answers.ts";
import type { Server } from "../http/server.ts";
import { SessionParams, TimingQuery } from "../sessions/params.ts";
import { deleteTemplate } from "../templates/delete.ts";
import { getTemplate } from "../templates/get.ts";
import { listTemplates } from "../templates/list.ts";
import { type SaveTemplateDeps, saveTemplate } from "./save-template.ts";

const TemplateParams = z.object({
  name: z.string().meta({ description: "a template's name, or `name@version` for one of its versions" }),
});
const tags = ["Templates"];

export function addTemplateRoutes(server: Server, deps: SaveTemplateDeps): void {
  server.get(
    "/v1/templates",
    {
      schema: {
        operationId: "listTemplates",
        summary: "List official templates, then the organisation's own, by name",
        tags,
        response: { 200: TemplateList, ...errorAnswers() },
      },
    },
    async (request) => ({ templates: await listTemplates(deps, scopeOf(principalOf(request))) }),
  );
  server.get(
    "/v1/templates/:name",
    {
      schema: {
        operationId: "getTemplate",
        summary: "Read a template, or one of its versions",
        tags,
        params: TemplateParams,
        response: { 200: Template, ...errorAnswers("not_found") },
      },
    },
    (request) => getTemplate(deps, scopeOf(principalOf(request)), request.params.name),
  );
  addDelete(server, deps);
  addSave(server, deps);
}

function addDelete(server: Server, deps: SaveTemplateDeps): void {
  server.delete(
    "/v1/templates/:name",
    {
      schema: {
        operationId: "deleteTemplate",
        summary: "Delete a template of your own, or one of its versions; what was made from it goes on",
        tags,
        params: TemplateParams,
        response: {
          204: z.void().meta({ description: "Deleted" }),
          ...errorAnswers("forbidden", "not_found"),
        },
      },
    },
    async (request, reply) => {
      const principal = principalOf(request);
      const input = { text: request.params.name, by: callerOf(principal, request) };
      await deleteTemplate(deps, scopeOf(principal), input);
      return await reply.status(204).send();
    },
  );
}

function addSave(server: Server, deps: SaveTemplateDeps): void {
  server.post(
    "/v1/sessions/:id/templates",
    {
      schema: {
        operationId: "saveTemplate",
        summary: "Save a session as a template of your own; under a name that exists, as its next version",
        tags,
        params: SessionParams,
        querystring: TimingQuery,
        body: TemplateSave,
        response: {
          200: Template,
          ...errorAnswers("forbidden", "not_found", "conflict", "session_ended"),
        },
      },
    },
    async (request) => {
      const principal = principalOf(request);
      const by = callerOf(principal, request);
      const input = { sessionId: request.params.id, body: request.body, by };
      const { template, timings } = await saveTemplate(deps, scopeOf(principal), input);
      return { ...template, timing: request.query.timing ? timings : undefined };
    },
  );
}

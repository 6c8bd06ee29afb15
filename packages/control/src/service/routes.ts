import { Health, OrgRecord, Whoami } from "@vivarium/contract/api";
import { principalOf } from "../http/authenticate.ts";
import { errorAnswers } from "../http/error-answers.ts";
import type { Server } from "../http/server.ts";
import type { ServiceDeps } from "./deps.ts";
import { checkHealth } from "./health.ts";
import { readOrg } from "./org.ts";

export function addServiceRoutes(server: Server, deps: ServiceDeps): void {
  server.get(
    "/v1/healthz",
    {
      config: { isPublic: true },
      schema: {
        operationId: "getHealth",
        summary: "Whether the service can run code, and how well isolated",
        tags: ["Service"],
        security: [],
        response: { 200: Health, ...errorAnswers("unavailable") },
      },
    },
    () => checkHealth(deps),
  );
  server.get(
    "/v1/org",
    {
      schema: {
        operationId: "getOrg",
        summary: "Capacity and limits of the organisation",
        tags: ["Service"],
        response: { 200: OrgRecord, ...errorAnswers() },
      },
    },
    (request) => readOrg(deps, principalOf(request)),
  );
  server.get(
    "/v1/whoami",
    {
      schema: {
        operationId: "whoami",
        summary: "Who the credential acts as",
        tags: ["Service"],
        response: { 200: Whoami, ...errorAnswers() },
      },
    },
    async (request) => {
      const principal = principalOf(request);
      return {
        kind: "api_key" as const,
        org_id: principal.orgId,
        key_id: principal.keyId,
        ...(principal.scopedProjectId !== null && { project_id: principal.scopedProjectId }),
      };
    },
  );
}

/** Routes of the health check, the organisation and the caller's identity. */
import { Health, OrgRecord, Whoami } from "@vivarium/contract/api";
import { principalOf } from "../http/authenticate.ts";
import { errorAnswers } from "../http/error-answers.ts";
import type { Server } from "../http/server.ts";
import type { ServiceDeps } from "./deps.ts";
import { checkHealth } from "./health.ts";
import { readOrg } from "./org.ts";

const tags = ["Service"];

export function addServiceRoutes(server: Server, deps: ServiceDeps): void {
  const health = {
    operationId: "getHealth",
    summary: "Whether the service can run code, and how well isolated",
    tags,
    security: [],
    response: { 200: Health, ...errorAnswers("unavailable") },
  };
  server.get("/v1/healthz", { config: { isPublic: true }, schema: health }, () => checkHealth(deps));
  const org = {
    operationId: "getOrg",
    summary: "Capacity and limits of the organisation",
    tags,
    response: { 200: OrgRecord, ...errorAnswers() },
  };
  server.get("/v1/org", { schema: org }, (request) => readOrg(deps, principalOf(request)));
  const whoami = {
    operationId: "whoami",
    summary: "Who the credential acts as",
    tags,
    response: { 200: Whoami, ...errorAnswers() },
  };
  server.get("/v1/whoami", { schema: whoami }, async (request) => {
    const { orgId, keyId, scopedProjectId, role, session } = principalOf(request);
    return {
      kind: session ? ("scoped_token" as const) : ("api_key" as const),
      org_id: orgId,
      ...(scopedProjectId !== null && { project_id: scopedProjectId }),
      ...(session
        ? { session_id: session.id, capabilities: [...session.capabilities] }
        : { key_id: keyId, role }),
    };
  });
}

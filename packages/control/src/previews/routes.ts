/** Routes that expose and unexpose ports. */
import { Exposed, ExposeRequest, Unexposed, UnexposeRequest } from "@vivarium/contract/api";
import { callerOf } from "../access/caller.ts";
import { scopeOf } from "../access/principal.ts";
import { principalOf } from "../http/authenticate.ts";
import { errorAnswers } from "../http/error-answers.ts";
import type { Server } from "../http/server.ts";
import { SessionParams } from "../sessions/params.ts";
import type { PreviewDeps } from "./deps.ts";
import { exposePort } from "./expose.ts";
import { unexposePort } from "./unexpose.ts";

const tags = ["Previews"];
const params = SessionParams;
const REFUSALS = ["not_found", "conflict", "session_not_live", "session_ended"] as const;

export function addPreviewRoutes(server: Server, deps: PreviewDeps): void {
  const expose = {
    operationId: "exposePort",
    summary: "Make a guest port reachable under a URL, or change how; it wakes a paused session if it has to",
    tags,
    params,
    body: ExposeRequest,
    response: { 200: Exposed, ...errorAnswers(...REFUSALS, "rate_limited") },
  };
  server.post("/v1/sessions/:id/expose", { schema: expose }, async (request) => {
    const principal = principalOf(request);
    const input = { id: request.params.id, body: request.body, by: callerOf(principal, request) };
    return await exposePort(deps, scopeOf(principal), input);
  });
  const unexpose = {
    operationId: "unexposePort",
    summary: "Close a port; URL, cookies and open connections are dead when the call answers",
    tags,
    params,
    body: UnexposeRequest,
    response: { 200: Unexposed, ...errorAnswers(...REFUSALS) },
  };
  server.post("/v1/sessions/:id/unexpose", { schema: unexpose }, async (request) => {
    const principal = principalOf(request);
    const input = { id: request.params.id, port: request.body.port, by: callerOf(principal, request) };
    return { ok: await unexposePort(deps, scopeOf(principal), input) };
  });
}

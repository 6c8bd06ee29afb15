/** Routes of egress policies, egress logs and daily caps. */
import {
  EgressCap,
  EgressLog,
  EgressPolicy,
  OrgEgressCap,
  OrgEgressCapPut,
  SessionEgress,
  SessionPatch,
} from "@vivarium/contract/api";
import { callerOf } from "../access/caller.ts";
import { scopeOf } from "../access/principal.ts";
import { principalOf } from "../http/authenticate.ts";
import { errorAnswers } from "../http/error-answers.ts";
import type { Server } from "../http/server.ts";
import { getReadable } from "../sessions/get.ts";
import { SessionParams } from "../sessions/params.ts";
import { getCap, setCap } from "./cap.ts";
import type { EgressDeps } from "./deps.ts";
import { setOrgCap } from "./org-cap.ts";
import { readOrgCap } from "./org-cap-store.ts";
import { EgressLogQuery, readLog } from "./read-log.ts";
import { setPolicy } from "./set-policy.ts";

const tags = ["Egress"];
const params = SessionParams;
const POLICY_CLOSED_IN = ["failed", "lifetime_expired"] as const;
const OF_CHANGES = ["not_found", "conflict", "session_not_live", "session_ended"] as const;

export function addEgressRoutes(server: Server, deps: EgressDeps): void {
  addPolicyRoutes(server, deps);
  addCapRoutes(server, deps);
  const log = {
    operationId: "listEgressLog",
    summary: "Read what a session reached and what it was refused, newest first; also after its end",
    tags,
    params,
    querystring: EgressLogQuery,
    response: { 200: EgressLog, ...errorAnswers("not_found") },
  };
  server.get("/v1/sessions/:id/egress-log", { schema: log }, async (request) => {
    const scope = scopeOf(principalOf(request));
    const { entries, nextCursor } = await readLog(deps.db, scope, request.params.id, request.query);
    return { entries, next_cursor: nextCursor };
  });
  addOrgCapRoutes(server, deps);
}

function addPolicyRoutes(server: Server, deps: EgressDeps): void {
  const read = {
    operationId: "getEgress",
    summary: "Read a session's egress policy",
    tags,
    params,
    response: { 200: SessionEgress, ...errorAnswers("not_found", "conflict", "session_ended") },
  };
  server.get("/v1/sessions/:id/egress", { schema: read }, async (request) => {
    const scope = scopeOf(principalOf(request));
    const { id, egress } = await getReadable(deps.db, scope, request.params.id, POLICY_CLOSED_IN);
    return { session_id: id, ...egress };
  });
  const set = {
    operationId: "setEgress",
    summary: "Replace a session's egress policy; it is in force when the call answers, and wakes nothing",
    tags,
    params,
    body: EgressPolicy,
    response: { 200: SessionEgress, ...errorAnswers(...OF_CHANGES) },
  };
  server.post("/v1/sessions/:id/egress", { schema: set }, async (request) => {
    const { id } = request.params;
    const principal = principalOf(request);
    const input = { id, policy: request.body, by: callerOf(principal, request) };
    return { session_id: id, ...(await setPolicy(deps, scopeOf(principal), input)) };
  });
}

function addCapRoutes(server: Server, deps: EgressDeps): void {
  const set = {
    operationId: "updateSession",
    summary: "Set or clear a session's daily egress cap; it takes effect with the next sweep",
    tags,
    params,
    body: SessionPatch,
    response: { 200: EgressCap, ...errorAnswers(...OF_CHANGES) },
  };
  server.patch("/v1/sessions/:id", { schema: set }, async (request) => {
    const principal = principalOf(request);
    const input = { id: request.params.id, patch: request.body, by: callerOf(principal, request) };
    return await setCap(deps, scopeOf(principal), input);
  });
  const read = {
    operationId: "getEgressCap",
    summary: "Read a session's daily egress cap and what it sent today",
    tags,
    params,
    response: { 200: EgressCap, ...errorAnswers("not_found", "conflict") },
  };
  server.get("/v1/sessions/:id/egress-cap", { schema: read }, async (request) =>
    getCap(deps, scopeOf(principalOf(request)), request.params.id),
  );
}

function addOrgCapRoutes(server: Server, deps: EgressDeps): void {
  const { db, egressCaps } = deps;
  const read = {
    operationId: "getOrgEgressCap",
    summary: "Read the organisation's daily egress cap and what its sessions sent today",
    tags,
    response: { 200: OrgEgressCap, ...errorAnswers() },
  };
  server.get("/v1/org/egress-cap", { schema: read }, async (request) =>
    readOrgCap(db, egressCaps, principalOf(request).orgId),
  );
  const set = {
    operationId: "setOrgEgressCap",
    summary: "Set the organisation's daily egress cap; over it, its sessions are paused and none starts",
    tags,
    body: OrgEgressCapPut,
    response: { 200: OrgEgressCap, ...errorAnswers("forbidden") },
  };
  server.put("/v1/org/egress-cap", { schema: set }, async (request) => {
    const principal = principalOf(request);
    const input = { capBytes: request.body.cap_bytes, by: callerOf(principal, request) };
    return await setOrgCap(deps, principal, input);
  });
}

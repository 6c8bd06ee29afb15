import { EgressCap, EgressLog, EgressPolicy, SessionEgress, SessionPatch } from "@vivarium/contract/api";
import { scopeOf } from "../access/principal.ts";
import { principalOf } from "../http/authenticate.ts";
import { errorAnswers } from "../http/error-answers.ts";
import type { Server } from "../http/server.ts";
import { getReadable } from "../sessions/get.ts";
import { SessionParams } from "../sessions/params.ts";
import { getCap, setCap } from "./cap.ts";
import type { EgressDeps } from "./deps.ts";
import { EgressLogQuery, readLog } from "./read-log.ts";
import { setPolicy } from "./set-policy.ts";

const tags = ["Egress"];
const params = SessionParams;
const POLICY_CLOSED_IN = ["failed", "lifetime_expired"] as const;
const OF_CHANGES = ["not_found", "conflict", "session_not_live", "session_ended"] as const;

export function addEgressRoutes(server: Server, deps: EgressDeps): void {
  addPolicyRoutes(server, deps);
  addCapRoutes(server, deps);
  server.get(
    "/v1/sessions/:id/egress-log",
    {
      schema: {
        operationId: "listEgressLog",
        summary: "Read what a session reached and what it was refused, newest first; also after its end",
        tags,
        params,
        querystring: EgressLogQuery,
        response: { 200: EgressLog, ...errorAnswers("not_found") },
      },
    },
    async (request) => {
      const scope = scopeOf(principalOf(request));
      const { entries, nextCursor } = await readLog(deps.db, scope, request.params.id, request.query);
      return { entries, ...(nextCursor !== undefined && { next_cursor: nextCursor }) };
    },
  );
}

function addPolicyRoutes(server: Server, deps: EgressDeps): void {
  server.get(
    "/v1/sessions/:id/egress",
    {
      schema: {
        operationId: "getEgress",
        summary: "Read a session's egress policy",
        tags,
        params,
        response: { 200: SessionEgress, ...errorAnswers("not_found", "conflict", "session_ended") },
      },
    },
    async (request) => {
      const scope = scopeOf(principalOf(request));
      const { id, egress } = await getReadable(deps.db, scope, request.params.id, POLICY_CLOSED_IN);
      return { session_id: id, ...egress };
    },
  );
  server.post(
    "/v1/sessions/:id/egress",
    {
      schema: {
        operationId: "setEgress",
        summary: "Replace a session's egress policy; it is in force when the call answers, and wakes nothing",
        tags,
        params,
        body: EgressPolicy,
        response: { 200: SessionEgress, ...errorAnswers(...OF_CHANGES) },
      },
    },
    async (request) => {
      const { id } = request.params;
      const input = { id, policy: request.body };
      return { session_id: id, ...(await setPolicy(deps, scopeOf(principalOf(request)), input)) };
    },
  );
}

function addCapRoutes(server: Server, deps: EgressDeps): void {
  server.patch(
    "/v1/sessions/:id",
    {
      schema: {
        operationId: "updateSession",
        summary: "Set or clear a session's daily egress cap; it takes effect with the next sweep",
        tags,
        params,
        body: SessionPatch,
        response: { 200: EgressCap, ...errorAnswers(...OF_CHANGES) },
      },
    },
    async (request) => {
      const input = { id: request.params.id, patch: request.body };
      return await setCap(deps, scopeOf(principalOf(request)), input);
    },
  );
  server.get(
    "/v1/sessions/:id/egress-cap",
    {
      schema: {
        operationId: "getEgressCap",
        summary: "Read a session's daily egress cap and what it sent today",
        tags,
        params,
        response: { 200: EgressCap, ...errorAnswers("not_found", "conflict") },
      },
    },
    async (request) => await getCap(deps, scopeOf(principalOf(request)), request.params.id),
  );
}

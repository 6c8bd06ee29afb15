/** The route of stateless runs. */
import { LIMITS, RunRequest, RunResult } from "@vivarium/contract/api";
import type { FastifyRequest } from "fastify";
import { callerOf } from "../access/caller.ts";
import { checkProjectOfBody } from "../access/resolve-project.ts";
import { ApiError } from "../errors/api-error.ts";
import { returnOnceAnswered } from "../exec/output-quota.ts";
import { principalOf } from "../http/authenticate.ts";
import { errorAnswers } from "../http/error-answers.ts";
import type { Server } from "../http/server.ts";
import { clientGone } from "../http/sse.ts";
import type { RunDeps } from "./deps.ts";
import { runCode } from "./run.ts";

/** Fields of a session create that a run refuses. Ignoring them silently would be worse. */
const REFUSED = ["egress", "connections", "env", "secrets"] as const;
/** The fields of these that are refused even when null, because they protect something. */
const STRICT: ReadonlySet<string> = new Set(["egress", "connections"]);

export function addRunRoutes(server: Server, deps: RunDeps): void {
  const schema = {
    operationId: "run",
    summary: "Run code in a machine of its own, made for it and destroyed afterwards",
    tags: ["Runs"],
    body: RunRequest,
    response: {
      200: RunResult,
      ...errorAnswers("not_found", "conflict", "session_ended", "rate_limited", "bad_gateway"),
    },
  };
  const preValidation = async (request: FastifyRequest) => {
    checkProjectOfBody(principalOf(request), request.body);
    refuseSessionFields(request.body);
  };
  server.post("/v1/sessions/exec", { schema, preValidation }, async (request, reply) => {
    const gone = clientGone(reply);
    const principal = principalOf(request);
    const by = callerOf(principal, request);
    // Two streams each of the installer and of the code.
    const reservation = deps.outputQuotas.reserve(principal.orgId, 4 * LIMITS.execOutputBytes);
    const input = { body: request.body, signal: gone, by, reservation };
    return await runCode(deps, principal, input)
      .catch((error: unknown) => {
        if (!gone.aborted) throw error;
        // The client left, which caused the error. No one reads the answer.
        request.log.info("the client left before its run ended");
        throw new ApiError("session_ended", "the run was ended, because its client left", { cause: error });
      })
      .finally(() => returnOnceAnswered(reservation, reply.raw));
  });
}

function refuseSessionFields(body: unknown): void {
  if (typeof body !== "object" || body === null) return;
  const given = body as Record<string, unknown>;
  const field = REFUSED.find(
    (name) => Object.hasOwn(body, name) && (given[name] !== null || STRICT.has(name)),
  );
  if (field === undefined) return;
  const message = `${field}: is not accepted by a stateless run; create a session to use it`;
  throw new ApiError("validation", message);
}

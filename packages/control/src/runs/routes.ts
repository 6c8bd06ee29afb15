import { LIMITS, RunRequest, RunResult } from "@vivarium/contract/api";
import { checkScopeOfBody } from "../access/resolve-project.ts";
import { callerOf } from "../audit/caller.ts";
import { type OutputQuotas, returnOnceAnswered } from "../exec/output-quota.ts";
import { ApiError } from "../http/api-error.ts";
import { principalOf } from "../http/authenticate.ts";
import { errorAnswers } from "../http/error-answers.ts";
import type { Server } from "../http/server.ts";
import { clientGone } from "../http/sse.ts";
import { type ParsedRun, type RunDeps, runCode } from "./run.ts";

/** Fields of a session create that a run does not take: dropping them silently would be worse than refusing. */
const REFUSED = ["egress", "connections", "env", "secrets"] as const;
/** Null is as good as left out (wire.md 1.2), but not where security hangs on it. */
const STRICT: ReadonlySet<string> = new Set(["egress", "connections"]);

export function addRunRoutes(server: Server, deps: RunDeps & { outputQuotas: OutputQuotas }): void {
  server.post(
    "/v1/sessions/exec",
    {
      schema: {
        operationId: "run",
        summary: "Run code in a machine of its own, made for it and destroyed afterwards",
        tags: ["Runs"],
        body: RunRequest,
        response: {
          200: RunResult,
          ...errorAnswers("not_found", "conflict", "session_ended", "rate_limited", "bad_gateway"),
        },
      },
      preValidation: async (request) => {
        checkScopeOfBody(principalOf(request), request.body);
        refuseSessionFields(request.body);
      },
    },
    async (request, reply) => {
      const gone = clientGone(reply);
      const principal = principalOf(request);
      const by = callerOf(principal, request);
      // An installer's output and the code's own.
      const room = deps.outputQuotas.room(principal.orgId, 4 * LIMITS.execOutputBytes);
      const input = { body: request.body as ParsedRun, signal: gone, by, room };
      return await runCode(deps, principal, input)
        .catch((error: unknown) => {
          if (!gone.aborted) throw error;
          // Whatever failed then, failed because of it, and nobody reads what is answered.
          request.log.info("the client left before its run ended");
          throw new ApiError("session_ended", "the run was ended, because its client left", { cause: error });
        })
        .finally(() => returnOnceAnswered(room, reply.raw));
    },
  );
}

function refuseSessionFields(body: unknown): void {
  if (typeof body !== "object" || body === null) return;
  const given = body as Record<string, unknown>;
  const field = REFUSED.find(
    (name) => Object.hasOwn(body, name) && (given[name] !== null || STRICT.has(name)),
  );
  if (field) {
    throw new ApiError(
      "validation",
      `${field}: is not accepted by a stateless run; create a session to use it`,
    );
  }
}

import { SessionCreate, SessionRecord } from "@vivarium/contract/api";
import { text } from "@vivarium/contract/api/wire-types";
import { z } from "zod";
import { callerOf } from "../access/caller.ts";
import { checkProjectOfBody } from "../access/resolve-project.ts";
import { principalOf } from "../http/authenticate.ts";
import { errorAnswers } from "../http/error-answers.ts";
import type { Server } from "../http/server.ts";
import { RecordQuery } from "../sessions/params.ts";
import type { PreviewUrls } from "../sessions/preview-urls.ts";
import { recordOf } from "../sessions/record.ts";
import { createSession } from "./create.ts";
import type { StartDeps } from "./deps.ts";
import { readIdempotencyKey } from "./idempotency.ts";

const tags = ["Sessions"];

export function addStartRoutes(server: Server, deps: StartDeps & PreviewUrls): void {
  server.post(
    "/v1/sessions",
    {
      schema: {
        operationId: "createSession",
        summary: "Create a session; it answers at once and is provisioned behind",
        tags,
        querystring: RecordQuery,
        headers: z.object({ "idempotency-key": text().optional() }),
        body: SessionCreate,
        response: {
          200: SessionRecord,
          ...errorAnswers("forbidden", "not_found", "conflict", "rate_limited"),
        },
      },
      preValidation: async (request) => checkProjectOfBody(principalOf(request), request.body),
    },
    async (request, reply) => {
      const idempotencyKey = readIdempotencyKey(request.headers["idempotency-key"]);
      const principal = principalOf(request);
      const input = { body: request.body, idempotencyKey, by: callerOf(principal, request) };
      const { session, isReplay } = await createSession(deps, principal, input);
      if (isReplay) void reply.header("idempotent-replayed", "true");
      return await recordOf(deps, session, { withTiming: request.query.timing });
    },
  );
}

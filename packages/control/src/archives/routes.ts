/** Routes of archives. */
import { Archive } from "@vivarium/contract/api";
import { callerOf } from "../access/caller.ts";
import { scopeOf } from "../access/principal.ts";
import { principalOf } from "../http/authenticate.ts";
import { errorAnswers } from "../http/error-answers.ts";
import type { Server } from "../http/server.ts";
import { SessionParams } from "../sessions/params.ts";
import type { ArchiveDeps } from "./deps.ts";
import { retryArchive } from "./retry.ts";

export function addArchiveRoutes(server: Server, deps: ArchiveDeps): void {
  server.post(
    "/v1/sessions/:id/archive/retry",
    {
      schema: {
        operationId: "retryArchive",
        summary: "Try again to store a paused session's state; it answers at once, and the upload goes on",
        tags: ["Sessions"],
        params: SessionParams,
        response: { 202: Archive, ...errorAnswers("not_found", "conflict", "archive_unavailable") },
      },
    },
    async (request, reply) => {
      const principal = principalOf(request);
      const input = { id: request.params.id, by: callerOf(principal, request) };
      return await reply.status(202).send(await retryArchive(deps, scopeOf(principal), input));
    },
  );
}

/** Routes that read, destroy, pause and resume a session. */
import { END_REASONS, PausedSession, PauseRequest, SessionRecord } from "@vivarium/contract/api";
import { z } from "zod";
import { callerOf } from "../access/caller.ts";
import { scopeOf } from "../access/principal.ts";
import { principalOf } from "../http/authenticate.ts";
import { errorAnswers } from "../http/error-answers.ts";
import type { Server } from "../http/server.ts";
import { getSession } from "../sessions/get.ts";
import { RecordQuery, SessionParams } from "../sessions/params.ts";
import type { PreviewUrls } from "../sessions/preview-urls.ts";
import { recordOf, withActivity } from "../sessions/record.ts";
import type { MoveDeps } from "./deps.ts";
import { destroySession } from "./destroy.ts";
import { readSession } from "./expire.ts";
import { pauseSession } from "./pause.ts";
import { resumeSession } from "./resume.ts";

const tags = ["Sessions"];

/** A DELETE may give one of the first two end reasons. */
const DeleteQuery = z.object({ reason: z.enum([END_REASONS[0], END_REASONS[1]]).optional() });

export function addMoveRoutes(server: Server, deps: MoveDeps & PreviewUrls): void {
  server.get(
    "/v1/sessions/:id",
    {
      schema: {
        operationId: "getSession",
        summary: "Read a session",
        tags,
        params: SessionParams,
        querystring: RecordQuery,
        response: { 200: SessionRecord, ...errorAnswers("not_found") },
      },
    },
    async (request) => {
      const unflushed = deps.activity.unflushed();
      const row = await readSession(deps, scopeOf(principalOf(request)), request.params.id);
      const current = withActivity(unflushed, row);
      return await recordOf(deps, current, { withTiming: request.query.timing });
    },
  );
  server.delete(
    "/v1/sessions/:id",
    {
      schema: {
        operationId: "deleteSession",
        summary: "Destroy a session, whatever its state",
        tags,
        params: SessionParams,
        querystring: DeleteQuery,
        response: {
          204: z.void().meta({ description: "Destroyed" }),
          ...errorAnswers("forbidden", "not_found"),
        },
      },
    },
    async (request, reply) => {
      const principal = principalOf(request);
      const row = await getSession(deps.db, scopeOf(principal), request.params.id);
      const by = callerOf(principal, request);
      await destroySession(deps, row, { endReason: request.query.reason, by, isNodeAwaited: true });
      return await reply.status(204).send();
    },
  );
  addPauseRoutes(server, deps);
}

function addPauseRoutes(server: Server, deps: MoveDeps & PreviewUrls): void {
  server.post(
    "/v1/sessions/:id/pause",
    {
      schema: {
        operationId: "pauseSession",
        summary: "Save a session and stop its machine; it answers once the state is durable",
        tags,
        params: SessionParams,
        querystring: RecordQuery,
        body: PauseRequest,
        response: {
          200: PausedSession,
          ...errorAnswers(
            "not_found",
            "conflict",
            "session_not_live",
            "session_ended",
            "archive_unavailable",
          ),
        },
      },
    },
    async (request) => {
      const principal = principalOf(request);
      const by = callerOf(principal, request);
      const input = { id: request.params.id, wakeAt: request.body.wake_at, by };
      const { session, timings } = await pauseSession(deps, scopeOf(principal), input);
      return { ...(await recordOf(deps, session)), timing: request.query.timing ? timings : undefined };
    },
  );
  server.post(
    "/v1/sessions/:id/resume",
    {
      schema: {
        operationId: "resumeSession",
        summary: "Wake a paused session; it answers once the session takes commands",
        tags,
        params: SessionParams,
        querystring: RecordQuery,
        response: {
          200: SessionRecord,
          ...errorAnswers("not_found", "conflict", "session_not_live", "session_ended", "rate_limited"),
        },
      },
    },
    async (request) => {
      const principal = principalOf(request);
      const input = { id: request.params.id, by: callerOf(principal, request) };
      const session = await resumeSession(deps, scopeOf(principal), input);
      return await recordOf(deps, session, { withTiming: request.query.timing });
    },
  );
}

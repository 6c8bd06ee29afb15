import { PausedSession, PauseRequest, SessionRecord } from "@vivarium/contract/api";
import { scopeOf } from "../access/principal.ts";
import { principalOf } from "../http/authenticate.ts";
import { errorAnswers } from "../http/error-answers.ts";
import type { Server } from "../http/server.ts";
import type { PreviewUrls } from "../sessions/preview-urls.ts";
import { toRecord } from "../sessions/record.ts";
import { RecordQuery, SessionParams } from "../starts/routes.ts";
import { type PauseVerbDeps, pauseSession } from "./pause.ts";
import { resumeSession } from "./resume.ts";
import type { WakeDeps } from "./wake.ts";

const tags = ["Sessions"];

export function addLifecycleRoutes(server: Server, deps: PauseVerbDeps & WakeDeps & PreviewUrls): void {
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
      const input = { id: request.params.id, wakeAt: request.body.wake_at };
      const { session, timings } = await pauseSession(deps, scopeOf(principalOf(request)), input);
      return { ...toRecord(deps, session), timing: request.query.timing ? timings : undefined };
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
      const session = await resumeSession(deps, scopeOf(principalOf(request)), request.params.id);
      return toRecord(deps, session, { withTiming: request.query.timing });
    },
  );
}

import { END_REASONS, SessionCreate, SessionList, SessionRecord } from "@vivarium/contract/api";
import { text } from "@vivarium/contract/api/wire-types";
import { z } from "zod";
import { scopeOf } from "../access/principal.ts";
import { checkScopeOfBody } from "../access/resolve-project.ts";
import type { Activity } from "../deadlines/activity.ts";
import { principalOf } from "../http/authenticate.ts";
import { errorAnswers } from "../http/error-answers.ts";
import { queryFlag } from "../http/query.ts";
import type { Server } from "../http/server.ts";
import { type DestroyDeps, destroySession } from "../moves/destroy.ts";
import { type ExpireDeps, readSession } from "../moves/expire.ts";
import { getSession } from "../sessions/get.ts";
import { ListQuery, listSessions } from "../sessions/list.ts";
import type { PreviewUrls } from "../sessions/preview-urls.ts";
import { toRecord } from "../sessions/record.ts";
import type { SessionRow } from "../sessions/store.ts";
import { type CreateDeps, createSession } from "./create.ts";
import { readIdempotencyKey } from "./idempotency.ts";

export const SessionParams = z.object({ id: z.string() });

/** What a DELETE may give as its reason: the first two of the end reasons. */
const DeleteQuery = z.object({ reason: z.enum([END_REASONS[0], END_REASONS[1]]).optional() });
/** `timing=true`: the answer tells where the time of its start, or of what was asked for, went. */
export const RecordQuery = z.object({
  timing: queryFlag
    .optional()
    .meta({ description: "tell where the time of the create, the pause or the wake went, once it is over" }),
});
const tags = ["Sessions"];

type SessionRouteDeps = CreateDeps & DestroyDeps & ExpireDeps & PreviewUrls & { activity: Activity };

export function addSessionRoutes(server: Server, deps: SessionRouteDeps): void {
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
      preValidation: async (request) => checkScopeOfBody(principalOf(request), request.body),
    },
    async (request, reply) => {
      const idempotencyKey = readIdempotencyKey(request.headers["idempotency-key"]);
      const input = { body: request.body, idempotencyKey };
      const { session, isReplay } = await createSession(deps, principalOf(request), input);
      if (isReplay) void reply.header("idempotent-replayed", "true");
      return toRecord(deps, session, { withTiming: request.query.timing });
    },
  );
  server.get(
    "/v1/sessions",
    {
      schema: {
        operationId: "listSessions",
        summary: "List sessions, newest first; state=ended pages through the history",
        tags,
        querystring: ListQuery,
        response: { 200: SessionList, ...errorAnswers() },
      },
    },
    async (request) => {
      const pending = deps.activity.pending();
      const { sessions, nextCursor } = await listSessions(
        deps.db,
        scopeOf(principalOf(request)),
        request.query,
      );
      const records = sessions.map((row) => toRecord(deps, upToDate(pending, row)));
      return { sessions: records, ...(nextCursor !== undefined && { next_cursor: nextCursor }) };
    },
  );
  addSessionItemRoutes(server, deps);
}

function addSessionItemRoutes(server: Server, deps: SessionRouteDeps): void {
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
      const pending = deps.activity.pending();
      const row = await readSession(deps, scopeOf(principalOf(request)), request.params.id);
      return toRecord(deps, upToDate(pending, row), { withTiming: request.query.timing });
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
      const row = await getSession(deps.db, scopeOf(principalOf(request)), request.params.id);
      await destroySession(deps, row, { endReason: request.query.reason, isNodeAwaited: true });
      return await reply.status(204).send();
    },
  );
}

/** The row with the activity that is not written yet. None of it is a session's that has ended. */
function upToDate(pending: ReturnType<Activity["pending"]>, row: SessionRow): SessionRow {
  if (row.ended_at !== null) return row;
  const seen = pending(row.id);
  return seen && seen > row.last_active_at ? { ...row, last_active_at: seen } : row;
}

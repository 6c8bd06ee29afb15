/** Routes of checkpoints, restores, forks and starts from a checkpoint. */
import {
  Checkpoint,
  CheckpointCreate,
  CheckpointList,
  CheckpointStart,
  ForkResult,
  forkWithin,
  Restore,
  SessionRecord,
} from "@vivarium/contract/api";
import { z } from "zod";
import { callerOf } from "../access/caller.ts";
import { scopeOf } from "../access/principal.ts";
import { checkProjectOfBody } from "../access/resolve-project.ts";
import { deleteCheckpoint } from "../checkpoints/delete.ts";
import { getCheckpoint } from "../checkpoints/get.ts";
import { CheckpointQuery, listCheckpoints } from "../checkpoints/list.ts";
import { toCheckpoint } from "../checkpoints/record.ts";
import { listCheckpointRows } from "../checkpoints/store.ts";
import { principalOf } from "../http/authenticate.ts";
import { errorAnswers } from "../http/error-answers.ts";
import type { Server } from "../http/server.ts";
import { getReadable } from "../sessions/get.ts";
import { SessionParams, TimingQuery } from "../sessions/params.ts";
import type { PreviewUrls } from "../sessions/preview-urls.ts";
import { recordOf } from "../sessions/record.ts";
import type { StartDeps } from "../starts/deps.ts";
import { createCheckpoint } from "./create-checkpoint.ts";
import { forkSession } from "./fork.ts";
import { restoreSession } from "./restore.ts";
import { startCheckpoint } from "./start-from-checkpoint.ts";

const CheckpointParams = z.object({ cid: z.string() });
const tags = ["Checkpoints"];
const OF_OPERATIONS = ["not_found", "conflict", "session_ended"] as const;

type CheckpointRouteDeps = StartDeps &
  PreviewUrls & {
    /** The operator's cap on the children of one fork. */
    forkChildren: number;
  };

export function addCheckpointRoutes(server: Server, deps: CheckpointRouteDeps): void {
  addSessionCheckpointRoutes(server, deps);
  addCloneRoutes(server, deps);
  server.get(
    "/v1/checkpoints",
    {
      schema: {
        operationId: "listCheckpoints",
        summary: "List the organisation's checkpoints, newest first, also those of sessions that have ended",
        tags,
        querystring: CheckpointQuery,
        response: { 200: CheckpointList, ...errorAnswers() },
      },
    },
    async (request) => {
      const page = await listCheckpoints(deps.db, scopeOf(principalOf(request)), request.query);
      return { checkpoints: page.checkpoints.map(toCheckpoint), next_cursor: page.nextCursor };
    },
  );
  server.get(
    "/v1/checkpoints/:cid",
    {
      schema: {
        operationId: "getCheckpoint",
        summary: "Read a checkpoint",
        tags,
        params: CheckpointParams,
        response: { 200: Checkpoint, ...errorAnswers("not_found") },
      },
    },
    async (request) =>
      toCheckpoint(await getCheckpoint(deps.db, scopeOf(principalOf(request)), request.params.cid)),
  );
  server.delete(
    "/v1/checkpoints/:cid",
    {
      schema: {
        operationId: "deleteCheckpoint",
        summary: "Delete a checkpoint; sessions that were started from it go on",
        tags,
        params: CheckpointParams,
        response: { 204: z.void().meta({ description: "Deleted" }), ...errorAnswers("not_found") },
      },
    },
    async (request, reply) => {
      const principal = principalOf(request);
      const input = { id: request.params.cid, by: callerOf(principal, request) };
      await deleteCheckpoint(deps, scopeOf(principal), input);
      return await reply.status(204).send();
    },
  );
}

function addSessionCheckpointRoutes(server: Server, deps: CheckpointRouteDeps): void {
  server.post(
    "/v1/sessions/:id/checkpoints",
    {
      schema: {
        operationId: "createCheckpoint",
        summary: "Keep a session's state; a live session runs on, a paused one stays paused",
        tags,
        params: SessionParams,
        querystring: TimingQuery,
        body: CheckpointCreate.optional(),
        response: { 200: Checkpoint, ...errorAnswers(...OF_OPERATIONS) },
      },
    },
    async (request) => {
      const principal = principalOf(request);
      const by = callerOf(principal, request);
      const input = { sessionId: request.params.id, body: request.body ?? {}, by };
      const { row, timings } = await createCheckpoint(deps, scopeOf(principal), input);
      return { ...toCheckpoint(row), timing: request.query.timing ? timings : undefined };
    },
  );
  server.get(
    "/v1/sessions/:id/checkpoints",
    {
      schema: {
        operationId: "listSessionCheckpoints",
        summary: "List a session's checkpoints, newest first",
        tags,
        params: SessionParams,
        response: { 200: CheckpointList, ...errorAnswers("not_found", "conflict") },
      },
    },
    async (request) => {
      const scope = scopeOf(principalOf(request));
      const { id: sessionId } = await getReadable(deps.db, scope, request.params.id);
      const rows = await listCheckpointRows(deps.db, scope, { sessionId });
      return { checkpoints: rows.map(toCheckpoint) };
    },
  );
  server.post(
    "/v1/sessions/:id/restore",
    {
      schema: {
        operationId: "restoreSession",
        summary: "Take a session back to one of its checkpoints, in place",
        tags,
        params: SessionParams,
        querystring: TimingQuery,
        body: Restore,
        response: { 200: SessionRecord, ...errorAnswers(...OF_OPERATIONS, "rate_limited") },
      },
    },
    async (request) => {
      const principal = principalOf(request);
      const by = callerOf(principal, request);
      const input = { sessionId: request.params.id, idOrName: request.body.checkpoint_id, by };
      const session = await restoreSession(deps, scopeOf(principal), input);
      return await recordOf(deps, session, { withTiming: request.query.timing });
    },
  );
}

/** Routes that make new sessions from a saved state. */
function addCloneRoutes(server: Server, deps: CheckpointRouteDeps): void {
  server.post(
    "/v1/sessions/:id/fork",
    {
      schema: {
        operationId: "forkSession",
        summary: "Make more sessions from this instant of a session; they are live when it answers",
        tags: ["Sessions"],
        params: SessionParams,
        querystring: TimingQuery,
        body: forkWithin(deps.forkChildren).optional(),
        response: { 200: ForkResult, ...errorAnswers(...OF_OPERATIONS, "rate_limited") },
      },
    },
    async (request) => {
      const principal = principalOf(request);
      const by = callerOf(principal, request);
      const input = { sessionId: request.params.id, count: request.body?.count ?? 1, by };
      const { parentId, children, timings } = await forkSession(deps, principal, input);
      return {
        parent_session_id: parentId,
        children: children.map(({ id }) => id),
        timing: request.query.timing ? timings : undefined,
      };
    },
  );
  server.post(
    "/v1/checkpoints/:cid/sessions",
    {
      schema: {
        operationId: "startCheckpoint",
        summary: "Start a session of its own from a checkpoint; it is live when it answers",
        tags,
        params: CheckpointParams,
        querystring: TimingQuery,
        body: CheckpointStart.optional(),
        response: { 200: SessionRecord, ...errorAnswers("forbidden", ...OF_OPERATIONS, "rate_limited") },
      },
      preValidation: async (request) => checkProjectOfBody(principalOf(request), request.body),
    },
    async (request) => {
      const body = request.body ?? CheckpointStart.parse({});
      const principal = principalOf(request);
      const input = { checkpointId: request.params.cid, body, by: callerOf(principal, request) };
      const session = await startCheckpoint(deps, principal, input);
      return await recordOf(deps, session, { withTiming: request.query.timing });
    },
  );
}

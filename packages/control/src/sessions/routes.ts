import { SessionList } from "@vivarium/contract/api";
import type { Log } from "@vivarium/kit/log";
import { scopeOf } from "../access/principal.ts";
import { principalOf } from "../http/authenticate.ts";
import { errorAnswers } from "../http/error-answers.ts";
import type { Server } from "../http/server.ts";
import type { SecretDeps } from "../secrets/variables.ts";
import { ListQuery, listSessions } from "./list.ts";
import type { PreviewUrls } from "./preview-urls.ts";
import { readRecordParts, toRecord, type UnflushedActivity, withActivity } from "./record.ts";

type ListDeps = PreviewUrls & SecretDeps & { log: Log; activity: UnflushedActivity };

export function addSessionRoutes(server: Server, deps: ListDeps): void {
  server.get(
    "/v1/sessions",
    {
      schema: {
        operationId: "listSessions",
        summary: "List sessions, newest first; state=ended pages through the history",
        tags: ["Sessions"],
        querystring: ListQuery,
        response: { 200: SessionList, ...errorAnswers() },
      },
    },
    async (request) => {
      const unflushed = deps.activity.unflushed();
      const { sessions, nextCursor } = await listSessions(
        deps.db,
        scopeOf(principalOf(request)),
        request.query,
      );
      const partsOf = await readRecordParts(deps, sessions);
      const records = sessions.map((row) => toRecord(deps, withActivity(unflushed, row), partsOf(row)));
      return { sessions: records, next_cursor: nextCursor };
    },
  );
}

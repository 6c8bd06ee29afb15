/** The route that reads the audit log. */
import { AuditList } from "@vivarium/contract/api";
import type { Database } from "../db/pool.ts";
import { principalOf } from "../http/authenticate.ts";
import { errorAnswers } from "../http/error-answers.ts";
import type { Server } from "../http/server.ts";
import { AuditQuery, listAudit } from "./list.ts";

export function addAuditRoutes(server: Server, deps: { db: Database }): void {
  server.get(
    "/v1/audit",
    {
      schema: {
        operationId: "listAudit",
        summary: "Read the audit log, newest first: the commands of the organisation's sessions",
        tags: ["Audit"],
        querystring: AuditQuery,
        response: { 200: AuditList, ...errorAnswers("forbidden") },
      },
    },
    async (request) => {
      const { entries, nextCursor } = await listAudit(deps.db, principalOf(request), request.query);
      return { entries, ...(nextCursor !== undefined && { next_cursor: nextCursor }) };
    },
  );
}

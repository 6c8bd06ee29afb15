/** Routes that read, verify and export the audit log. */
import { Readable } from "node:stream";
import { AuditList, AuditVerification } from "@vivarium/contract/api";
import { z } from "zod";
import { principalOf } from "../http/authenticate.ts";
import { errorAnswers } from "../http/error-answers.ts";
import { queryText } from "../http/query.ts";
import type { Server } from "../http/server.ts";
import { exportLines } from "./export.ts";
import type { ChainDeps } from "./extend-chain.ts";
import { AuditQuery, listAudit } from "./list.ts";
import { requireAuditReader } from "./readers.ts";
import { verifyStep } from "./verify.ts";

const tags = ["Audit"];

const VerifyQuery = z.object({ cursor: queryText().optional(), known: queryText().optional() });

const LINK_NUMBER = "must be the number of a link, given once";
const ExportQuery = z.object({
  after: z
    .string(LINK_NUMBER)
    .regex(/^[0-9]{1,15}$/, LINK_NUMBER)
    .transform(Number)
    .optional(),
});

export function addAuditRoutes(server: Server, deps: ChainDeps): void {
  const list = {
    operationId: "listAudit",
    summary: "Read the audit log, newest first: changes, denials and commands of the organisation",
    tags,
    querystring: AuditQuery,
    response: { 200: AuditList, ...errorAnswers("forbidden") },
  };
  server.get("/v1/audit", { schema: list }, async (request) => {
    const { entries, nextCursor } = await listAudit(deps.db, principalOf(request), request.query);
    return { entries, ...(nextCursor !== undefined && { next_cursor: nextCursor }) };
  });
  const verify = {
    operationId: "verifyAudit",
    summary:
      "Verify a part of the audit log against its chain; repeat with `cursor` until no next_cursor comes",
    tags,
    querystring: VerifyQuery,
    response: { 200: AuditVerification, ...errorAnswers("forbidden") },
  };
  server.get("/v1/audit/verify", { schema: verify }, async (request) => {
    const principal = principalOf(request);
    requireAuditReader(principal);
    return await verifyStep(deps, principal.orgId, request.query);
  });
  addExport(server, deps);
}

function addExport(server: Server, deps: ChainDeps): void {
  const schema = {
    operationId: "exportAudit",
    summary: "Export the audit log with its chain, as lines of JSON, oldest first",
    tags,
    querystring: ExportQuery,
    response: {
      200: {
        description: "One JSON object a line; the last one has the type `head`",
        content: { "application/x-ndjson": { schema: z.string() } },
      },
      ...errorAnswers("forbidden"),
    },
  };
  server.get("/v1/audit/export", { schema }, async (request, reply) => {
    const principal = principalOf(request);
    requireAuditReader(principal);
    const lines = Readable.from(exportLines(deps.db, principal.orgId, request.query.after), {
      objectMode: false,
      highWaterMark: 64 * 1024,
    });
    return await reply.header("content-type", "application/x-ndjson").send(lines as never);
  });
}

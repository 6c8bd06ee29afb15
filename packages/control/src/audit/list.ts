/** The query and the pages of the audit log (docs/spec/access.md). */
import { AUDIT_ID_PATTERN, type AuditEntry, LIMITS, SESSION_ID_PATTERN } from "@vivarium/contract/api";
import { instant } from "@vivarium/contract/api/wire-types";
import type { z } from "zod";
import type { Principal } from "../access/principal.ts";
import type { Queries } from "../db/pool.ts";
import { ApiError } from "../errors/api-error.ts";
import { decodeCursor, pageOf } from "../http/cursor.ts";
import { PageQuery, queryText } from "../http/query.ts";
import { type AuditRow, listEntries } from "./store.ts";

const time = instant("must be an RFC 3339 timestamp, given once")
  .transform((text) => new Date(text))
  .optional();

export const AuditQuery = PageQuery.extend({
  since: time,
  until: time,
  action: queryText().optional(),
  session_id: queryText().optional(),
});

/** Entries of the organisation, newest first. */
export async function listAudit(
  db: Queries,
  principal: Principal,
  query: z.output<typeof AuditQuery>,
): Promise<{ entries: AuditEntry[]; nextCursor?: string }> {
  if (principal.scopedProjectId !== null) {
    throw new ApiError("forbidden", "the audit log is the organisation's; this key is bound to one project");
  }
  const { since, until, action, session_id: sessionId } = query;
  const limit = Math.min(query.limit ?? LIMITS.pageDefault, LIMITS.pageMax);
  const after = query.cursor === undefined ? undefined : decodeCursor(query.cursor, AUDIT_ID_PATTERN);
  // An id of the wrong form matches nothing.
  if (sessionId !== undefined && !SESSION_ID_PATTERN.test(sessionId)) return { entries: [] };
  const filter = { since, until, action, sessionId, after, limit: limit + 1 };
  const rows = await listEntries(db, principal.orgId, filter);
  const { page, ...next } = pageOf(rows, limit, (row) => row);
  return { entries: page.map(toEntry), ...next };
}

function toEntry(row: AuditRow): AuditEntry {
  return {
    id: row.id,
    at: row.at.toISOString(),
    actor: { kind: row.actor_kind, id: row.actor_id },
    action: row.action,
    target: row.target,
    outcome: row.outcome,
    ...(row.code !== null && { code: row.code }),
    request_id: row.request_id,
    ip: row.ip,
    meta: row.meta as AuditEntry["meta"],
  };
}

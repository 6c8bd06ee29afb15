/** The query and the pages of the audit log (docs/spec/access.md). */
import { AUDIT_ID_PATTERN, type AuditEntry, LIMITS, SESSION_ID_PATTERN } from "@vivarium/contract/api";
import { instant } from "@vivarium/contract/api/wire-types";
import type { z } from "zod";
import type { Principal } from "../access/principal.ts";
import type { Queries } from "../db/pool.ts";
import { decodeCursor, pageOf } from "../http/cursor.ts";
import { PageQuery, queryText } from "../http/query.ts";
import { requireAuditReader } from "./readers.ts";
import { toEntry } from "./record.ts";
import { listEntries } from "./store.ts";

const time = instant("must be an RFC 3339 timestamp, given once")
  .transform((text) => new Date(text))
  .optional();

export const AuditQuery = PageQuery.extend({
  since: time,
  until: time,
  actor: queryText().optional(),
  action: queryText().optional(),
  target: queryText().optional(),
  session_id: queryText().optional(),
});

/** Entries of the organisation, newest first. */
export async function listAudit(
  db: Queries,
  principal: Principal,
  query: z.output<typeof AuditQuery>,
): Promise<{ entries: AuditEntry[]; nextCursor?: string }> {
  requireAuditReader(principal);
  const { session_id: sessionId, cursor, limit: asked, ...filter } = query;
  const limit = Math.min(asked ?? LIMITS.pageDefault, LIMITS.pageMax);
  const after = cursor === undefined ? undefined : decodeCursor(cursor, AUDIT_ID_PATTERN);
  // An id of the wrong form matches nothing.
  if (sessionId !== undefined && !SESSION_ID_PATTERN.test(sessionId)) return { entries: [] };
  const rows = await listEntries(db, principal.orgId, { ...filter, sessionId, after, limit: limit + 1 });
  const { page, ...next } = pageOf(rows, limit, (row) => row);
  return { entries: page.map(toEntry), ...next };
}

/** Reads a session's egress log, newest first, also after the session's end. */
import { isIPv4 } from "node:net";
import { EGRESS_DECISIONS, type EgressLogEntry, LIMITS } from "@vivarium/contract/api";
import { instant } from "@vivarium/contract/api/wire-types";
import { OPENING_RULES } from "@vivarium/contract/gateway";
import { findRange } from "@vivarium/kit/ipv4-ranges";
import { z } from "zod";
import type { Scope } from "../access/principal.ts";
import type { Queries } from "../db/pool.ts";
import { decodeCursor, pageOf } from "../http/cursor.ts";
import { PageQuery, queryText } from "../http/query.ts";
import { getAnySession } from "../sessions/get.ts";
import { type EgressLogRow, listLines } from "./log-store.ts";

export const EgressLogQuery = PageQuery.extend({
  decision: z.enum(EGRESS_DECISIONS).optional(),
  host: queryText().max(255).optional(),
  since: instant("must be an RFC 3339 timestamp, given once")
    .transform((text) => new Date(text))
    .optional(),
});

const SEQ_PATTERN = /^[1-9][0-9]{0,15}$/;

export async function readLog(
  db: Queries,
  scope: Scope,
  sessionId: string,
  query: z.output<typeof EgressLogQuery>,
): Promise<{ entries: EgressLogEntry[]; nextCursor?: string }> {
  const limit = Math.min(query.limit ?? LIMITS.pageDefault, LIMITS.pageMax);
  const before = query.cursor === undefined ? undefined : Number(decodeCursor(query.cursor, SEQ_PATTERN).id);
  await getAnySession(db, scope, sessionId);
  const { decision, since } = query;
  const host = query.host?.toLowerCase();
  const rows = await listLines(db, { sessionId, decision, host, since, before, limit: limit + 1 });
  const { page, ...next } = pageOf(rows, limit, ({ at, seq }) => ({ at, id: String(seq) }));
  return { entries: page.map(toEntry), ...next };
}

function toEntry(row: EgressLogRow): EgressLogEntry {
  return {
    at: row.at.toISOString(),
    kind: row.kind as EgressLogEntry["kind"],
    ...(row.host !== null && { host: row.host }),
    ...(row.address !== null && { address: row.address }),
    ...(row.port !== null && { port: row.port }),
    decision: row.decision as EgressLogEntry["decision"],
    reason: row.reason,
    ...(isOpenedPrivate(row) && { private: true }),
    ...(row.kind === "connection" && requestOf(row)),
    bytes_out: row.bytes_out,
    bytes_in: row.bytes_in,
    count: row.count,
  };
}

/** The request through a Connection that a line is about. */
function requestOf({ connection, method, path, rule, status, is_unscanned }: EgressLogRow) {
  return {
    ...(connection !== null && { connection }),
    ...(method !== null && { method }),
    ...(path !== null && { path }),
    ...(rule !== null && { rule }),
    ...(status !== null && { status }),
    ...(is_unscanned && { unscanned: true as const }),
  };
}

/** Without an opening of the operator nothing at a private address is ever allowed. */
function isOpenedPrivate({ decision, address }: EgressLogRow): boolean {
  return (
    decision === "allowed" &&
    address !== null &&
    isIPv4(address) &&
    findRange(OPENING_RULES.openable, address) !== undefined
  );
}

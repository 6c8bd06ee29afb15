/** Lists the checkpoints in scope, even if their session has ended. */
import { CHECKPOINT_ID_PATTERN, LIMITS, SESSION_ID_PATTERN } from "@vivarium/contract/api";
import type { z } from "zod";
import type { Scope } from "../access/principal.ts";
import type { Queries } from "../db/pool.ts";
import { decodeCursor, pageOf } from "../http/cursor.ts";
import { PageQuery, queryText } from "../http/query.ts";
import { type CheckpointRow, listCheckpointRows } from "./store.ts";

/** Query of `GET /v1/checkpoints`. */
export const CheckpointQuery = PageQuery.extend({ session_id: queryText().optional() });

export async function listCheckpoints(
  db: Queries,
  scope: Scope,
  query: z.output<typeof CheckpointQuery>,
): Promise<{ checkpoints: CheckpointRow[]; nextCursor?: string }> {
  // An id of the wrong form matches nothing.
  if (query.session_id !== undefined && !SESSION_ID_PATTERN.test(query.session_id))
    return { checkpoints: [] };
  const limit = Math.min(query.limit ?? LIMITS.pageDefault, LIMITS.pageMax);
  const after = query.cursor === undefined ? undefined : decodeCursor(query.cursor, CHECKPOINT_ID_PATTERN);
  const filter = { sessionId: query.session_id, after, limit: limit + 1 };
  const rows = await listCheckpointRows(db, scope, filter);
  const { page, ...next } = pageOf(rows, limit, ({ created_at: at, id }) => ({ at, id }));
  return { checkpoints: page, ...next };
}

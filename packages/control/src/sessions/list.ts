/** Lists a caller's sessions: the current ones, or the history of ended ones. */
import { LIMITS, LIST_STATES, type ListState, SESSION_ID_PATTERN } from "@vivarium/contract/api";
import { plainText } from "@vivarium/contract/api/wire-types";
import { z } from "zod";
import type { Scope } from "../access/principal.ts";
import type { Queries } from "../db/pool.ts";
import { decodeCursor, pageOf } from "../http/cursor.ts";
import { PageQuery } from "../http/query.ts";
import { invalidField } from "../http/validation.ts";
import { listCurrent, listEnded, type SessionRow } from "./store.ts";

/** Query of `GET /v1/sessions`. */
export const ListQuery = z.object({
  state: z.enum(LIST_STATES).optional(),
  ...PageQuery.shape,
  external_id: plainText(0, LIMITS.externalIdChars).optional(),
});
export type ListQuery = z.output<typeof ListQuery>;

interface SessionPage {
  sessions: SessionRow[];
  nextCursor?: string;
}

export async function listSessions(db: Queries, scope: Scope, query: ListQuery): Promise<SessionPage> {
  const limit = Math.min(query.limit ?? LIMITS.listDefault, LIMITS.listMax);
  if (query.state === "ended") return await listHistory(db, scope, limit, query);
  if (query.cursor !== undefined) throw invalidField("cursor", "is accepted together with state=ended only");
  const states = query.state && STATES_SHOWN[query.state];
  return { sessions: await listCurrent(db, scope, { states, externalId: query.external_id, limit }) };
}

const STATES_SHOWN: Record<Exclude<ListState, "ended">, string[]> = {
  creating: ["creating"],
  live: ["live"],
  paused: ["paused", "lifetime_expired"],
};

async function listHistory(db: Queries, scope: Scope, limit: number, query: ListQuery): Promise<SessionPage> {
  if (query.external_id !== undefined) {
    throw invalidField("external_id", "cannot be combined with state=ended");
  }
  const after = query.cursor === undefined ? undefined : decodeCursor(query.cursor, SESSION_ID_PATTERN);
  const rows = await listEnded(db, scope, { after, limit: limit + 1 });
  const { page, ...next } = pageOf(rows, limit, ({ ended_at: at, id }) => ({ at: at as Date, id }));
  return { sessions: page, ...next };
}

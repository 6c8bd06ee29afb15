/** Parses the query for events, and reads pages of them, oldest first (docs/spec/events.md). */
import { EVENT_TYPE_FILTER_PATTERN, type Event, LIMITS } from "@vivarium/contract/api";
import type { z } from "zod";
import type { Scope } from "../access/principal.ts";
import type { Database } from "../db/pool.ts";
import { decodeCursor, pageOf } from "../http/cursor.ts";
import { PageQuery, queryText } from "../http/query.ts";
import { invalidField } from "../http/validation.ts";
import { toEvent } from "./record.ts";
import { type Start, startAfter } from "./start.ts";
import { type EventFilter, listEvents } from "./store.ts";

const POSITION_PATTERN = /^[1-9][0-9]{0,15}$/;
const TYPE_CHARS = 64;
const TYPES = 64;

export const EventQuery = PageQuery.extend({
  session_id: queryText().optional(),
  types: queryText().optional(),
  after: queryText().optional(),
});
export type EventQuery = z.output<typeof EventQuery>;

/** Unknown types are not refused, because a later release may have more types. */
export function filterOf(scope: Scope, { types, session_id: sessionId }: EventQuery): EventFilter {
  return { scope, types: types === undefined ? undefined : parseTypes(types), sessionId };
}

function parseTypes(text: string): { exact: string[]; groups: string[] } {
  const names = text.split(",");
  if (names.length > TYPES) throw invalidField("types", `must name at most ${TYPES} types`);
  for (const name of names) {
    if (name.length > TYPE_CHARS || !EVENT_TYPE_FILTER_PATTERN.test(name))
      throw invalidField(
        "types",
        "must be event types such as session.paused or session.*, with commas",
        name,
      );
  }
  const groups = names.filter((name) => name.endsWith(".*"));
  return {
    exact: names.filter((name) => !name.endsWith(".*")),
    groups: groups.map((name) => name.slice(0, -1)),
  };
}

export async function listPage(
  db: Database,
  filter: EventFilter,
  query: EventQuery,
): Promise<{ events: Event[]; nextCursor?: string }> {
  const limit = Math.min(query.limit ?? LIMITS.pageDefault, LIMITS.pageMax);
  const { after, gap } = await startOf(db, filter, query);
  const rows = await listEvents(db, filter, { after, limit: limit + 1 });
  const { page, ...next } = pageOf(rows, limit, ({ created_at: at, position }) => ({
    at,
    id: String(position),
  }));
  return { events: [...(gap ? [gap] : []), ...page.map(toEvent)], ...next };
}

/** The cursor replaces `after`, which was for the first page. */
async function startOf(db: Database, filter: EventFilter, query: EventQuery): Promise<Start> {
  if (query.cursor !== undefined) return { after: Number(decodeCursor(query.cursor, POSITION_PATTERN).id) };
  return query.after === undefined ? { after: 0 } : await startAfter(db, filter, query.after);
}

/** Pages of stored events, oldest first. */
import { type Event, LIMITS } from "@vivarium/contract/api";
import { decodeCursor, pageOf } from "../http/cursor.ts";
import type { EventDeps } from "./deps.ts";
import type { EventQuery } from "./query.ts";
import { toEvent } from "./record.ts";
import { type Start, startAfter } from "./start.ts";
import { type EventFilter, listEvents } from "./store.ts";

const POSITION_PATTERN = /^[1-9][0-9]{0,15}$/;

export async function listPage(
  deps: Pick<EventDeps, "db">,
  filter: EventFilter,
  query: EventQuery,
): Promise<{ events: Event[]; nextCursor?: string }> {
  const limit = Math.min(query.limit ?? LIMITS.pageDefault, LIMITS.pageMax);
  const { after, gap } = await startOf(deps, filter, query);
  const rows = await listEvents(deps.db, filter, { after, limit: limit + 1 });
  const { page, ...next } = pageOf(rows, limit, ({ created_at: at, position }) => ({
    at,
    id: String(position),
  }));
  return { events: [...(gap ? [gap] : []), ...page.map(toEvent)], ...next };
}

/** The cursor replaces `after`, which was for the first page. */
async function startOf(deps: Pick<EventDeps, "db">, filter: EventFilter, query: EventQuery): Promise<Start> {
  if (query.cursor !== undefined) return { after: Number(decodeCursor(query.cursor, POSITION_PATTERN).id) };
  return query.after === undefined ? { after: 0 } : await startAfter(deps, filter, query.after);
}

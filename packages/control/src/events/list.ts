/** Pages of stored events, oldest first. */
import { type Event, LIMITS } from "@vivarium/contract/api";
import { decodeCursor, encodeCursor } from "../http/cursor.ts";
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
  // One more row than asked for shows whether another page follows.
  const rows = await listEvents(deps.db, filter, { after, limit: limit + 1 });
  const page = rows.slice(0, limit);
  const last = page.at(-1);
  const events = [...(gap ? [gap] : []), ...page.map(toEvent)];
  if (rows.length <= limit || !last) return { events };
  return { events, nextCursor: encodeCursor({ at: last.created_at, id: String(last.position) }) };
}

/** The cursor replaces `after`, which was for the first page. */
async function startOf(deps: Pick<EventDeps, "db">, filter: EventFilter, query: EventQuery): Promise<Start> {
  if (query.cursor !== undefined) return { after: Number(decodeCursor(query.cursor, POSITION_PATTERN).id) };
  return query.after === undefined ? { after: 0 } : await startAfter(deps, filter, query.after);
}

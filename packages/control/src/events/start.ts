/** Finds the position at which a reader starts: now, after a given event, or at the oldest event if that is unknown. */
import { EVENT_ID_PATTERN, type Event, ID_PREFIXES, STREAM_GAP } from "@vivarium/contract/api";
import type { Database } from "../db/pool.ts";
import { newEventId } from "./append.ts";
import type { EventDeps } from "./feed.ts";
import { type EventFilter, findNewestId, findPosition, listEvents } from "./store.ts";

export interface Start {
  /** Events with a higher position follow. */
  after: number;
  /** Sent first: reports that events may be missing before the next one. A reader cannot resume from its id. */
  gap?: Event;
  /** The id to resume from, for a reader that has got no event yet. */
  resumeId?: string;
}

/** No event has this id. A reader that resumes from it gets the gap, and then all stored events. */
const NOTHING_YET = `${ID_PREFIXES.event}${"0".repeat(21)}`;

/** Call it after the feed has published: everything before the request then has a position, and is skipped. */
export async function startNow(
  { db, eventFeed }: Pick<EventDeps, "db" | "eventFeed">,
  { scope }: EventFilter,
): Promise<Start> {
  const after = eventFeed.head;
  return { after, resumeId: (await findNewestId(db, scope)) ?? NOTHING_YET };
}

/** The filter may exclude the event of this id, because a client may change its filter between connections. */
export async function startAfter(db: Database, filter: EventFilter, id: string): Promise<Start> {
  const after = EVENT_ID_PATTERN.test(id) ? await findPosition(db, filter.scope, id) : undefined;
  return after === undefined ? { after: 0, gap: await gapOf(db, filter) } : { after };
}

async function gapOf(db: Database, filter: EventFilter): Promise<Event> {
  const [oldest] = await listEvents(db, filter, { after: 0, limit: 1 });
  return {
    id: newEventId(),
    type: STREAM_GAP,
    created_at: new Date().toISOString(),
    org_id: filter.scope.orgId,
    data: oldest ? { oldest_id: oldest.id } : {},
  };
}

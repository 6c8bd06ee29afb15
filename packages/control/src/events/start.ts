/** Where a reader begins: now, after an event that it names, or at the oldest when that one is not known any more. */
import { EVENT_ID_PATTERN, type Event, ID_PREFIXES, STREAM_GAP } from "@vivarium/contract/api";
import type { Database } from "../db/pool.ts";
import { newEventId } from "./append.ts";
import type { EventFeed } from "./feed.ts";
import { type EventFilter, findNewestId, findPosition, listEvents } from "./store.ts";

export interface Start {
  /** Events with a later place follow. */
  after: number;
  /** Told first. It cannot be resumed from. */
  gap?: Event;
  /** The id that a reader who got nothing yet resumes from. */
  resumeId?: string;
}

/** No event has it: whoever resumes from here gets the gap, and then all there is. */
const NOTHING_YET = `${ID_PREFIXES.event}${"0".repeat(21)}`;

/** After a look of the feed: what happened before the request is the past, also where it had no place yet. */
export async function startNow(
  { db, eventFeed }: { db: Database; eventFeed: EventFeed },
  { scope }: EventFilter,
): Promise<Start> {
  const after = eventFeed.head;
  return { after, resumeId: (await findNewestId(db, scope)) ?? NOTHING_YET };
}

/** The id may be of an event that the filter leaves out now: a filter may change between two connections. */
export async function startAfter({ db }: { db: Database }, filter: EventFilter, id: string): Promise<Start> {
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

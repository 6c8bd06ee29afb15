/**
 * Streams events to one reader, and disconnects one that falls too far behind; it may resume by id. The database is the
 * buffer: events are read as fast as the reader takes them, so a slow reader costs no memory.
 */
import { LIMITS } from "@vivarium/contract/api";
import { sleep } from "@vivarium/kit/clock";
import { isStoreUnavailable } from "../db/postgres-errors.ts";
import type { EventStream } from "../http/sse.ts";
import type { EventDeps } from "./feed.ts";
import { toEvent } from "./record.ts";
import type { Start } from "./start.ts";
import { countEvents, type EventFilter, type EventRow, listEvents } from "./store.ts";

const PAGE = 200;
/** How often the backlog of a reader is checked while it does not take an event. */
const STALL_MS = 5_000;
const STORE_AWAY_MS = 1_000;

interface Reader {
  filter: EventFilter;
  start: Start;
  /** The client is gone, or this process shuts down. */
  over: AbortSignal;
}

export async function followEvents(deps: EventDeps, reader: Reader, stream: EventStream): Promise<void> {
  const { over, start, filter } = reader;
  over.addEventListener("abort", () => stream.close(), { once: true });
  const subscription = deps.eventFeed.subscribe(filter.scope.orgId);
  try {
    if (start.resumeId !== undefined) stream.resumeFrom(start.resumeId);
    // Sent without an id: a reader that breaks off here resumes from the id it has.
    if (start.gap) await stream.send(start.gap.type, JSON.stringify(start.gap));
    let after = start.after;
    while (!over.aborted) {
      after = await sendNewEvents(deps, reader, stream, after);
      if (!over.aborted) await subscription.next(over);
    }
  } catch (error) {
    if (!stream.isClosed && !over.aborted) throw error;
  } finally {
    subscription.stop();
    stream.close();
  }
}

/** Sends all events after this position. Returns the position up to which everything was sent. */
async function sendNewEvents(
  deps: EventDeps,
  reader: Reader,
  stream: EventStream,
  from: number,
): Promise<number> {
  // Read before the events, so that events up to here that the filter excludes are not read again.
  const { head } = deps.eventFeed;
  let after = from;
  while (!reader.over.aborted) {
    const rows = await readPage(deps, reader, after);
    for (const row of rows) {
      if (reader.over.aborted) return after;
      await sendOrDisconnect(deps, reader, stream, { row, after });
      after = row.position;
    }
    if (rows.length < PAGE) break;
  }
  return Math.max(after, head);
}

/** While the database is down, the stream waits. */
async function readPage({ db }: EventDeps, { filter, over }: Reader, after: number): Promise<EventRow[]> {
  while (!over.aborted) {
    try {
      return await listEvents(db, filter, { after, limit: PAGE });
    } catch (error) {
      if (!isStoreUnavailable(error)) throw error;
      await sleep(STORE_AWAY_MS, over);
    }
  }
  return [];
}

async function sendOrDisconnect(
  deps: EventDeps,
  { filter }: Reader,
  stream: EventStream,
  { row, after }: { row: EventRow; after: number },
): Promise<void> {
  const giveUp = async () => {
    const behind = await countEvents(deps.db, filter, { after, limit: LIMITS.eventsBehind + 1 });
    if (behind <= LIMITS.eventsBehind) return;
    deps.log.info(
      { org_id: filter.scope.orgId, after: row.id },
      "a reader of events fell too far behind and is disconnected",
    );
    stream.breakOff();
  };
  const stalled = setInterval(() => void giveUp().catch(() => undefined), STALL_MS);
  try {
    await stream.send(row.type, JSON.stringify(toEvent(row)), row.id);
  } finally {
    clearInterval(stalled);
  }
}

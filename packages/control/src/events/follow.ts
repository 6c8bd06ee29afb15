/**
 * One reader's stream. The database is its buffer: events are read as fast as the reader takes them, so that a slow
 * one costs no memory; one that takes nothing any more while events pile up is closed, and may resume by id.
 */
import { LIMITS } from "@vivarium/contract/api";
import { sleep } from "@vivarium/kit/clock";
import type { Log } from "@vivarium/kit/log";
import type { Database } from "../db/pool.ts";
import { isStoreUnavailable } from "../db/postgres-errors.ts";
import type { EventStream } from "../http/sse.ts";
import type { EventFeed } from "./feed.ts";
import { toEvent } from "./record.ts";
import type { Start } from "./start.ts";
import { countEvents, type EventFilter, type EventRow, listEvents } from "./store.ts";

const PAGE = 200;
/** A socket that took nothing for so long is slow. */
const STALL_MS = 5_000;
const STORE_AWAY_MS = 1_000;

export interface FollowDeps {
  db: Database;
  eventFeed: EventFeed;
  log: Log;
  stallMs?: number;
}

interface Reader {
  filter: EventFilter;
  start: Start;
  /** The client is gone, its credential has ended, or this process shuts down. */
  over: AbortSignal;
}

export async function followEvents(deps: FollowDeps, reader: Reader, stream: EventStream): Promise<void> {
  const { over, start, filter } = reader;
  over.addEventListener("abort", () => stream.close(), { once: true });
  const news = deps.eventFeed.news(filter.scope.orgId);
  try {
    if (start.resumeId !== undefined) stream.resumeFrom(start.resumeId);
    // Without an id: a reader that breaks off here asks again with the one it has.
    if (start.gap) await stream.send(start.gap.type, JSON.stringify(start.gap));
    let after = start.after;
    while (!over.aborted) {
      after = await sendLater(deps, reader, stream, after);
      if (!over.aborted) await news.next(over);
    }
  } catch (error) {
    if (!stream.isClosed && !over.aborted) throw error;
  } finally {
    news.stop();
    stream.close();
  }
}

/** Everything there is after this place; returns the place up to which nothing is left. */
async function sendLater(
  deps: FollowDeps,
  reader: Reader,
  stream: EventStream,
  from: number,
): Promise<number> {
  // Before the read: what it leaves out up to here does not match, and need not be looked at again.
  const { head } = deps.eventFeed;
  let after = from;
  while (!reader.over.aborted) {
    const rows = await readPage(deps, reader, after);
    for (const row of rows) {
      if (reader.over.aborted) return after;
      await sendPatiently(deps, reader, stream, { row, after });
      after = row.position;
    }
    if (rows.length < PAGE) break;
  }
  return Math.max(after, head);
}

/** A store that is away for a while ends no stream. */
async function readPage({ db }: FollowDeps, { filter, over }: Reader, after: number): Promise<EventRow[]> {
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

async function sendPatiently(
  deps: FollowDeps,
  { filter }: Reader,
  stream: EventStream,
  { row, after }: { row: EventRow; after: number },
): Promise<void> {
  const giveUp = async () => {
    const behind = await countEvents(deps.db, filter, { after, limit: LIMITS.eventsBehind + 1 });
    if (behind <= LIMITS.eventsBehind) return;
    deps.log.info({ org_id: filter.scope.orgId, after: row.id }, "a reader of events took none any more");
    stream.breakOff();
  };
  const stalled = setInterval(() => void giveUp().catch(() => undefined), deps.stallMs ?? STALL_MS);
  try {
    await stream.send(row.type, JSON.stringify(toEvent(row)), row.id);
  } finally {
    clearInterval(stalled);
  }
}

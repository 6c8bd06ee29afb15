import type { Event, EventList } from "@vivarium/contract/api";
import { followEvents } from "./follow-events.ts";
import { paginate } from "./paginator.ts";
import { type CallOptions, sendJson, type Transport } from "./transport.ts";

/** Which events are asked for; all of the organisation unless told. */
export interface EventFilter {
  /** Types such as `session.paused`, or groups such as `session.*`. */
  types?: readonly string[];
  /** Only those of one session. */
  sessionId?: string;
  /** Only what came later than the event with this id. */
  after?: string;
}

/** What happens in the organisation that the key belongs to. Reached as `client.events`. */
export class Events {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Each event as it happens, from now on, or from `after` on: what came later than that is replayed first. A
   * connection that breaks is made again, and goes on where it was, for as long as it takes; only what is refused
   * (a revoked key, say) ends the loop with an error. An event may come twice: tell them apart by `id`. When `after`,
   * or the last event before a long break, is not kept any more, an event of the type `stream.gap` comes first, and
   * then all that are kept. Without a signal the loop ends by `break`.
   *
   * @example
   * for await (const { type, session_id } of client.events.follow({ types: ["session.*"] })) console.log(type, session_id);
   */
  follow(filter: EventFilter = {}, options: CallOptions = {}): AsyncGenerator<Event, void, void> {
    return followEvents(this.#transport, { query: queryOf(filter), after: filter.after }, options);
  }

  /**
   * Events that are kept, of the last 7 days, oldest first, page after page as the loop goes on.
   *
   * @example
   * for await (const { created_at, type } of client.events.list({ sessionId })) console.log(created_at, type);
   */
  list(
    filter: EventFilter & { pageSize?: number } = {},
    options: CallOptions = {},
  ): AsyncGenerator<Event, void, void> {
    const { after, pageSize: limit } = filter;
    return paginate(async (cursor) => {
      const page = await sendJson<EventList>(this.#transport, {
        method: "GET",
        path: "/v1/events",
        query: { ...queryOf(filter), limit, cursor, after: cursor === undefined ? after : undefined },
        repeatable: true,
        ...options,
      });
      return { items: page.events, nextCursor: page.next_cursor };
    });
  }
}

function queryOf({ types, sessionId }: EventFilter): Record<string, string | undefined> {
  return { types: types?.join(","), session_id: sessionId };
}

import type { Event, EventList } from "@vivarium/contract/api";
import { followEvents } from "./follow-events.ts";
import { paginate } from "./paginator.ts";
import { type CallOptions, getJson, type Transport } from "./transport.ts";

/** Filter of events; without one, all events of the organisation. */
export interface EventFilter {
  /** Types such as `session.paused`, or groups such as `session.*`. */
  types?: readonly string[];
  /** Only events of one session. */
  sessionId?: string;
  /** Only events later than the event with this id. */
  after?: string;
}

/** Events of the organisation that the key belongs to. Reached as `client.events`. */
export class Events {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Each event as it happens, from now on; with `after`, later events are replayed first. A broken connection is made
   * again without a time limit and resumes after the last event; only a refusal (a revoked key, say) ends the loop with
   * an error. An event may come twice: compare the `id`. When `after`, or the last event before a long break, is no
   * longer stored, an event of the type `stream.gap` comes first, and then all stored events. Without a signal the loop
   * ends by `break`.
   *
   * @example
   * for await (const { type, session_id } of client.events.follow({ types: ["session.*"] })) console.log(type, session_id);
   */
  follow(filter: EventFilter = {}, options: CallOptions = {}): AsyncGenerator<Event, void, void> {
    return followEvents(this.#transport, { query: queryOf(filter), after: filter.after }, options);
  }

  /**
   * The stored events, of the last 7 days, oldest first, fetched page by page.
   *
   * @example
   * for await (const { created_at, type } of client.events.list({ sessionId })) console.log(created_at, type);
   */
  list(
    filter: EventFilter & { pageSize?: number } = {},
    options: CallOptions = {},
  ): AsyncGenerator<Event, void, void> {
    const query = { ...queryOf(filter), limit: filter.pageSize };
    return paginate("events", (cursor) => {
      const from = cursor === undefined ? { after: filter.after } : { cursor };
      return getJson<EventList>(this.#transport, "/v1/events", options, { ...query, ...from });
    });
  }
}

function queryOf({ types, sessionId }: EventFilter): Record<string, string | undefined> {
  return { types: types?.join(","), session_id: sessionId };
}

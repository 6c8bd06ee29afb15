/** `client.events`, which follows and lists the organisation's events. */
import type { Event, EventList } from "@vivarium/contract/api";
import { followEvents } from "./follow-events.ts";
import { paginate } from "./paginator.ts";
import { type CallOptions, getJson, type Transport } from "./transport.ts";

/** Filter of events; without a filter, all events of the organisation. */
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
   * Yields each event as it happens; with `after`, the stored events after it come first. A broken connection is made
   * again without a time limit and resumes after the last event. The loop ends with an error only when the first
   * connection fails or the service refuses (a revoked key, say); else it ends by the signal or by `break`. An event
   * may come twice: compare the `id`. When the event to resume after is no longer stored, an event of the type `stream.gap`
   * comes first, and then all stored events.
   *
   * @example
   * for await (const { type, session_id } of client.events.follow({ types: ["session.*"] })) console.log(type, session_id);
   */
  follow(filter: EventFilter = {}, options: CallOptions = {}): AsyncGenerator<Event, void, void> {
    return followEvents(this.#transport, { query: queryOf(filter), after: filter.after }, options);
  }

  /**
   * The stored events of the last 7 days, oldest first, fetched page by page.
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

import type { Event } from "@vivarium/contract/api";
import { VivariumError } from "./errors.ts";
import { readEvents } from "./sse.ts";
import { type CallOptions, send, type Transport } from "./transport.ts";

/** The service gives a sign of life every 15 s; a connection without any for this long is lost, whatever it looks like. */
const SILENCE_MS = 45_000;
const FIRST_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 5_000;

interface Follow {
  query: Record<string, string | undefined>;
  after: string | undefined;
}

/** Where the stream is: the id to resume from. */
interface Place {
  id: string | undefined;
}

/** One connection after the other, each from the last event of the one before. */
export async function* followEvents(
  transport: Transport,
  { query, after }: Follow,
  { signal }: CallOptions,
): AsyncGenerator<Event, void, void> {
  const place: Place = { id: after };
  let pauseMs = FIRST_PAUSE_MS;
  for (let connections = 0; ; connections++) {
    try {
      for await (const event of connectOnce(transport, query, place, signal)) {
        pauseMs = FIRST_PAUSE_MS;
        yield event;
      }
    } catch (error) {
      signal?.throwIfAborted();
      if (!isPassing(error) || (connections === 0 && !(error instanceof BrokenOff))) throw error;
    }
    await transport.sleep(pauseMs, signal);
    signal?.throwIfAborted();
    pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS);
  }
}

/** A stream that was open and is not any more. */
class BrokenOff extends Error {}

async function* connectOnce(
  transport: Transport,
  query: Follow["query"],
  place: Place,
  signal: AbortSignal | undefined,
): AsyncGenerator<Event, void, void> {
  const silence = new Silence();
  const asked = send(silence.over(transport), {
    method: "GET",
    path: "/v1/events",
    query,
    headers: {
      accept: "text/event-stream",
      ...(place.id !== undefined && { "last-event-id": place.id }),
    },
    repeatable: true,
    signal: AbortSignal.any([silence.signal, ...(signal ? [signal] : [])]),
  });
  const response = await asked.catch((cause: unknown) => {
    const isLost = silence.signal.aborted && !signal?.aborted;
    silence.end();
    if (!isLost) throw cause;
    const message = `${transport.url} took the connection and did not answer for ${SILENCE_MS / 1000} s`;
    throw new VivariumError("connection_failed", message, { retryable: true, cause });
  });
  const isAt = (id: string) => {
    place.id = id;
  };
  const events = readEvents(watched(response.body ?? [], silence), isAt);
  try {
    for (;;) {
      const next = await events.next().catch((cause: unknown) => {
        throw new BrokenOff("the stream of events broke off", { cause });
      });
      if (next.done) return;
      yield JSON.parse(next.value.data) as Event;
    }
  } finally {
    // Also when the loop over the events was left.
    silence.abort();
    silence.end();
    // And the watch over its silence, which would keep the program from ending. What the abort broke off says so here.
    void events.return(undefined).catch(() => undefined);
  }
}

/** Aborts when nothing was heard for too long: no answer, or nothing more of one. */
class Silence {
  readonly #over = new AbortController();
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** Each attempt begins a silence of its own, and what the service asked to wait between two is none. */
  over(transport: Transport): Transport {
    return {
      ...transport,
      fetch: (url, init) => {
        this.heard();
        return transport.fetch(url, init);
      },
      sleep: (ms, signal) => {
        this.end();
        return transport.sleep(ms, signal);
      },
    };
  }

  get signal(): AbortSignal {
    return this.#over.signal;
  }

  heard(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.abort(), SILENCE_MS);
  }

  abort(): void {
    this.#over.abort();
  }

  end(): void {
    clearTimeout(this.#timer);
  }
}

async function* watched(
  body: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  silence: Silence,
): AsyncGenerator<Uint8Array> {
  silence.heard();
  try {
    for await (const chunk of body) {
      silence.heard();
      yield chunk;
    }
  } finally {
    silence.end();
  }
}

/** Without an answer, or with a server's fault, the next connection may succeed. */
function isPassing(error: unknown): boolean {
  if (!(error instanceof VivariumError)) return error instanceof BrokenOff;
  return error.status === 0 || error.status === 429 || error.status >= 500;
}

/** Follows the stream of events across broken connections. */
import type { Event } from "@vivarium/contract/api";
import { VivariumError } from "./errors.ts";
import { readEvents } from "./sse.ts";
import { type CallOptions, send, type Transport } from "./transport.ts";

/** A connection that is silent for this long counts as lost: the service sends a heartbeat every 15 s. */
const SILENCE_MS = 45_000;
const FIRST_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 5_000;

type Query = Record<string, string | undefined>;
/** The id of the last event received, which the next connection resumes after. */
type Position = { id: string | undefined };

/** Makes one connection after the other. Each resumes after the last event of the one before. */
export async function* followEvents(
  transport: Transport,
  { query, after }: { query: Query; after: string | undefined },
  { signal }: CallOptions,
): AsyncGenerator<Event, void, void> {
  const position: Position = { id: after };
  let pauseMs = FIRST_PAUSE_MS;
  for (let connections = 0; ; connections++) {
    try {
      for await (const event of connectOnce(transport, query, position, signal)) {
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

/** The error for a stream that was open and broke. */
class BrokenOff extends Error {}

async function* connectOnce(
  transport: Transport,
  query: Query,
  position: Position,
  signal: AbortSignal | undefined,
): AsyncGenerator<Event, void, void> {
  const silence = new Silence();
  const asked = send(silence.over(transport), {
    method: "GET",
    path: "/v1/events",
    query,
    headers: {
      accept: "text/event-stream",
      ...(position.id !== undefined && { "last-event-id": position.id }),
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
  const onId = (id: string) => {
    position.id = id;
  };
  const events = readEvents(watched(response.body ?? [], silence), onId);
  try {
    for (;;) {
      const next = await events.next().catch((cause: unknown) => {
        throw new BrokenOff("the stream of events broke off", { cause });
      });
      if (next.done) return;
      yield JSON.parse(next.value.data) as Event;
    }
  } finally {
    // Also runs when the caller leaves the loop over the events.
    silence.abort();
    silence.end();
    // Ends the reader, whose timer would keep the program from ending. It rejects because of the abort.
    void events.return(undefined).catch(() => undefined);
  }
}

/** A timer that aborts a request when no answer or no bytes of it come for `SILENCE_MS`. */
class Silence {
  readonly #over = new AbortController();
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** Wraps a transport so that the timer restarts with each attempt and does not run during pauses between attempts. */
  over(transport: Transport): Transport {
    return {
      ...transport,
      fetch: (url, init) => {
        this.restart();
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

  restart(): void {
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
  silence.restart();
  try {
    for await (const chunk of body) {
      silence.restart();
      yield chunk;
    }
  } finally {
    silence.end();
  }
}

/** Whether the next connection may succeed: there was no answer, a rate limit, or a fault of the server. */
function isPassing(error: unknown): boolean {
  if (!(error instanceof VivariumError)) return error instanceof BrokenOff;
  return error.status === 0 || error.status === 429 || error.status >= 500;
}

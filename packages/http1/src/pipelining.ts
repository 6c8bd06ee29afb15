/** Limits pipelined requests, which a client sends before it has the answers to earlier ones. Each costs memory. */
import type { ServerResponse } from "node:http";
import type { Duplex } from "node:stream";

/** Most unanswered requests of a connection. Browsers and proxies send at most one ahead; apt sends ten. */
const MAX_UNANSWERED = 16;

const pipelines = new WeakMap<Duplex, Pipeline>();

/** The pipeline of a connection. `socket`: the connection, or TLS over it. */
export function pipelineOf(socket: Duplex): Pipeline {
  const known = pipelines.get(socket);
  if (known) return known;
  const pipeline = new Pipeline(socket);
  pipelines.set(socket, pipeline);
  return pipeline;
}

/** The requests of one connection whose answers have not ended, in the order in which they came. */
export class Pipeline {
  readonly #unanswered = new Set<ServerResponse>();
  #onAllAnswered: (() => void)[] = [];

  constructor(socket: Duplex) {
    socket.once("close", () => {
      // After an upgrade Node never closes the responses queued behind it; destroying them releases their permits.
      for (const response of this.#unanswered) response.destroy();
      this.#unanswered.clear();
    });
  }

  get unanswered(): number {
    return this.#unanswered.size;
  }

  /** The oldest unanswered request's response, the only one that may be sent now. */
  get first(): ServerResponse | undefined {
    return this.#unanswered.values().next().value;
  }

  has(response: ServerResponse): boolean {
    return this.#unanswered.has(response);
  }

  /** Removes the responses to requests that have not arrived whole. */
  forgetIncomplete(): void {
    for (const response of this.#unanswered) if (!response.req.complete) this.#unanswered.delete(response);
  }

  /** Adds a response. False: the connection has as many unanswered requests as it may. */
  add(response: ServerResponse, most = MAX_UNANSWERED): boolean {
    if (this.#unanswered.size >= most) return false;
    this.#unanswered.add(response);
    response.once("close", () => this.#remove(response));
    return true;
  }

  /** Calls back once all requests are answered. */
  whenAllAnswered(then: () => void): void {
    if (this.#unanswered.size === 0) then();
    else this.#onAllAnswered.push(then);
  }

  #remove(response: ServerResponse): void {
    this.#unanswered.delete(response);
    if (this.#unanswered.size > 0) return;
    for (const then of this.#onAllAnswered.splice(0)) then();
  }
}

import type { Transport } from "../transport.ts";

/**
 * The runs of one context that this client asked for: executed one at a time, in the order of the calls. A command may
 * take one hour from its request, so the request of a waiting run is not sent yet.
 */
export class RunQueue {
  readonly #whenEmpty: () => void;
  /** Resolves when every run asked for so far is over. */
  #last: Promise<unknown> = Promise.resolve();
  #size = 0;
  readonly #waiting = new Set<(reason: Error) => void>();

  constructor(whenEmpty: () => void) {
    this.#whenEmpty = whenEmpty;
  }

  /** Does the work when everything before it is over. Rejects at once when the signal is aborted before that. */
  run<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    const before = this.#last;
    return this.#append(async () => {
      await this.#turn(before, signal);
      return await work();
    });
  }

  /** Rejects all waiting runs with this reason, and does the work at once; later runs come after it. */
  cutIn<T>(work: () => Promise<T>, reason: Error): Promise<T> {
    this.drop(reason);
    return this.#append(work);
  }

  /** Rejects all waiting runs with this reason. */
  drop(reason: Error): void {
    for (const drop of this.#waiting) drop(reason);
  }

  /** A run that leaves the queue before its turn does not let later runs overtake earlier ones. */
  async #append<T>(work: () => Promise<T>): Promise<T> {
    const { promise: isOver, resolve: end } = Promise.withResolvers<void>();
    this.#last = Promise.all([this.#last, isOver]);
    this.#size++;
    try {
      return await work();
    } finally {
      end();
      if (--this.#size === 0) this.#whenEmpty();
    }
  }

  async #turn(before: Promise<unknown>, signal: AbortSignal | undefined): Promise<void> {
    signal?.throwIfAborted();
    const { promise: isDropped, reject: drop } = Promise.withResolvers<never>();
    const onAbort = () => drop(signal?.reason);
    signal?.addEventListener("abort", onAbort, { once: true });
    this.#waiting.add(drop);
    try {
      await Promise.race([before, isDropped]);
    } finally {
      this.#waiting.delete(drop);
      signal?.removeEventListener("abort", onAbort);
    }
  }
}

const queues = new WeakMap<Transport, Map<string, RunQueue>>();

/** The queue of a context, shared by all its objects of one client. Empty queues are not kept. */
export function runQueueOf(transport: Transport, context: string): RunQueue {
  const ofClient = queues.get(transport) ?? new Map<string, RunQueue>();
  queues.set(transport, ofClient);
  const queue = ofClient.get(context) ?? new RunQueue(() => ofClient.delete(context));
  ofClient.set(context, queue);
  return queue;
}

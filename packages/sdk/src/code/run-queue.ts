/** Executes the runs of one context one at a time. */
import type { Transport } from "../transport.ts";

/**
 * Queues the runs that this client asked for, in the order of the calls. The time limit of a command, one hour, counts
 * from its request, so the request of a waiting run is not sent yet.
 */
export class RunQueue {
  readonly #whenEmpty: () => void;
  /** Resolves when every run so far has ended. */
  #last: Promise<unknown> = Promise.resolve();
  #size = 0;
  readonly #waiting = new Set<(reason: Error) => void>();

  constructor(whenEmpty: () => void) {
    this.#whenEmpty = whenEmpty;
  }

  /** Does the work when all earlier work has ended. Rejects at once when the signal is aborted before. */
  run<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    const before = this.#last;
    return this.#append(async () => {
      await this.#waitFor(before, signal);
      return await work();
    });
  }

  /** Rejects all waiting runs with this reason, and does the work at once. Later runs wait for it. */
  cutIn<T>(work: () => Promise<T>, reason: Error): Promise<T> {
    this.drop(reason);
    return this.#append(work);
  }

  /** Rejects all waiting runs with this reason. */
  drop(reason: Error): void {
    for (const drop of this.#waiting) drop(reason);
  }

  /** Race: a run that leaves the queue early must not let later runs overtake earlier ones. Later runs wait for all. */
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

  async #waitFor(before: Promise<unknown>, signal: AbortSignal | undefined): Promise<void> {
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

/** The queue of a context, shared by all `CodeContext` objects of one client. Empty queues are dropped. */
export function runQueueOf(transport: Transport, context: string): RunQueue {
  const ofClient = queues.get(transport) ?? new Map<string, RunQueue>();
  queues.set(transport, ofClient);
  const queue = ofClient.get(context) ?? new RunQueue(() => ofClient.delete(context));
  ofClient.set(context, queue);
  return queue;
}

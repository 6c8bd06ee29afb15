import type { Transport } from "../transport.ts";

/**
 * The runs of one context that this client asked for: one after the other, in the order in which they were asked for. A
 * command may take an hour from when the service was asked for it, so one that still has to wait is not asked for yet.
 */
export class RunQueue {
  readonly #whenEmpty: () => void;
  /** Resolves when all that was asked for until now is over. */
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

  /** Ends what waits with this reason, and does the work at once; what is asked for from now on comes after it. */
  cutIn<T>(work: () => Promise<T>, reason: Error): Promise<T> {
    this.drop(reason);
    return this.#append(work);
  }

  /** Ends what waits with this reason. */
  drop(reason: Error): void {
    for (const drop of this.#waiting) drop(reason);
  }

  /** Whoever leaves before his turn lets nobody pass those who were before him. */
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

/** The queue of a context, which all its objects of one client share; only those are kept that something is in. */
export function runQueueOf(transport: Transport, context: string): RunQueue {
  const ofClient = queues.get(transport) ?? new Map<string, RunQueue>();
  queues.set(transport, ofClient);
  const queue = ofClient.get(context) ?? new RunQueue(() => ofClient.delete(context));
  ofClient.set(context, queue);
  return queue;
}

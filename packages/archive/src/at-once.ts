/** Does the same work for many items, a bounded number of them at a time. */
import { allOrNone } from "@vivarium/kit/all-or-none";

/** After a failure, or once the signal is aborted, no further item is begun. Returns when no work is running any more. */
export async function eachAtOnce<T>(
  items: Iterable<T>,
  most: number,
  signal: AbortSignal | undefined,
  work: (item: T) => Promise<void>,
): Promise<void> {
  const iterator = items[Symbol.iterator]();
  let hasFailed = false;
  const worker = async () => {
    for (;;) {
      if (hasFailed) return;
      signal?.throwIfAborted();
      const next = iterator.next();
      if (next.done) return;
      await work(next.value);
    }
  };
  const workers = Array.from({ length: most }, async () => {
    try {
      await worker();
    } catch (error) {
      hasFailed = true;
      throw error;
    }
  });
  await allOrNone(workers);
}

/** Sleeping, stopwatches, time limits and repeated work. */
/** Resolves after `ms`, or early (without an error) when the signal aborts. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  if (signal?.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", done, { once: true });
  });
}

/** Each call returns the whole milliseconds since the previous call; the first one, since the stopwatch was made. */
export function stopwatch(): () => number {
  let last = performance.now();
  return () => {
    const now = performance.now();
    const elapsed = Math.round(now - last);
    last = now;
    return elapsed;
  };
}

/** Whether the work ends within `ms`. Rejects if it fails by then. Late work is not stopped. */
export async function endsWithin(ms: number, work: Promise<unknown>): Promise<boolean> {
  const timer = new AbortController();
  const late = sleep(ms, timer.signal).then(() => false);
  return await Promise.race([work.then(() => true), late]).finally(() => timer.abort());
}

/** Repeats the work until the signal aborts, with a pause of `ms` before the first run and after the end of each. */
export async function repeatAfter(
  ms: number,
  until: AbortSignal,
  work: () => Promise<unknown>,
): Promise<void> {
  while (!until.aborted) {
    await sleep(ms, until);
    if (!until.aborted) await work();
  }
}

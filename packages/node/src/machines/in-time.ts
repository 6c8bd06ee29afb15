import { endsWithin } from "@vivarium/kit/clock";

/**
 * Runs work that has a slower fallback. Both write the same journal entry, so late work is aborted, given up and
 * waited for: none of it runs on once this has thrown. `giveUp` makes the work fail soon.
 */
export async function inTime<T>(
  limitMs: number,
  { work, giveUp }: { work: (late: AbortSignal) => Promise<T>; giveUp: () => Promise<void> },
): Promise<T> {
  const late = new AbortController();
  const done = work(late.signal);
  if (await endsWithin(limitMs, Promise.allSettled([done]))) return await done;
  late.abort();
  const givenUp = await Promise.allSettled([giveUp(), done]);
  const cause = givenUp.find(({ status }) => status === "rejected");
  throw new Error(`not within ${limitMs} ms`, { cause });
}

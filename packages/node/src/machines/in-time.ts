import { endsWithin } from "@vivarium/kit/clock";

/**
 * Runs work with a time limit, for a caller that has a slower fallback. Late work is aborted, made to fail by `giveUp`
 * and awaited before this throws, because the fallback writes the same journal entry.
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

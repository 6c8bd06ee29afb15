/**
 * Bounds what figures cost the database, however many rows they are of and however often they are asked for: a read rests for
 * ten times as long as it took, and its answer is repeated meanwhile. Calls that begin while one runs share its answer, so that
 * several metrics of one collection read once.
 */
const REST = 10;

export function sparingly<T>(
  read: () => Promise<T>,
  now: () => number = () => performance.now(),
): () => Promise<T> {
  let latest: Promise<T> | undefined;
  let restsUntil = Number.POSITIVE_INFINITY;
  const begin = async () => {
    const begunAt = now();
    restsUntil = Number.POSITIVE_INFINITY;
    try {
      return await read();
    } catch (error) {
      // The next call tries again.
      latest = undefined;
      throw error;
    } finally {
      restsUntil = now() + REST * (now() - begunAt);
    }
  };
  return () => {
    if (!latest || now() >= restsUntil) latest = begin();
    return latest;
  };
}

/** Waits for all of them, also when one fails: when this rejects, no work is still running. */
export async function allOrNone<T extends readonly unknown[] | []>(works: T) {
  await Promise.allSettled(works);
  return await Promise.all(works);
}

/** Awaits all promises even after one fails, so that no work is still running when this rejects. */
export async function allOrNone<T extends readonly unknown[] | []>(works: T) {
  await Promise.allSettled(works);
  return await Promise.all(works);
}

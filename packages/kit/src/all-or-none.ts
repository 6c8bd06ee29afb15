/** Waits for all of them also when one fails, so that nothing of what has failed goes on behind the error. */
export async function allOrNone<T extends readonly unknown[] | []>(works: T) {
  await Promise.allSettled(works);
  return await Promise.all(works);
}

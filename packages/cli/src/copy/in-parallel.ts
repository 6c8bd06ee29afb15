/** Runs `work` for each item, a few at once. After a failure no further item is started; running ones are awaited. */
export async function inParallel<T>(
  items: Iterable<T>,
  width: number,
  act: (item: T) => Promise<void>,
): Promise<void> {
  const queue = Iterator.from(items);
  let failure: { cause: unknown } | undefined;
  const work = async () => {
    for (const item of queue) {
      if (failure !== undefined) return;
      try {
        await act(item);
      } catch (cause) {
        failure ??= { cause };
      }
    }
  };
  await Promise.all(Array.from({ length: width }, work));
  if (failure !== undefined) throw failure.cause;
}

import { sleep } from "@vivarium/kit/clock";

/** Repeats `check` until it does not throw; its last failure is the test's failure. */
export async function eventually<T>(
  check: () => Promise<T> | T,
  withinMs = 10_000,
  everyMs = 100,
): Promise<T> {
  const deadline = Date.now() + withinMs;
  for (;;) {
    try {
      return await check();
    } catch (error) {
      if (Date.now() >= deadline) throw error;
    }
    await sleep(everyMs);
  }
}

import { sleep } from "@vivarium/kit/clock";

/** Part of the patience that one look may use up: a process that did not run for seconds has not waited that long. */
const LOOK_MS = 250;

/** Repeats `check` until it does not throw; its last failure is the test's failure. */
export async function eventually<T>(
  check: () => Promise<T> | T,
  withinMs = 10_000,
  everyMs = 100,
): Promise<T> {
  for (let waited = 0; ; ) {
    const began = performance.now();
    try {
      return await check();
    } catch (error) {
      if (waited >= withinMs) throw error;
    }
    await sleep(everyMs);
    waited += Math.min(performance.now() - began, LOOK_MS + everyMs);
  }
}

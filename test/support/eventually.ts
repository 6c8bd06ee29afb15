import { sleep } from "@vivarium/kit/clock";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";

/** Milliseconds that one check counts for at most: a process that was suspended has not waited that long. */
const CHECK_MS = 250;
/** Only what never comes is waited for as long as this: on a busy host some of what comes is late. */
const PATIENCE_MS = 60_000;

/** Repeats `check` until it does not throw; after the time limit its last error is thrown. */
export async function eventually<T>(
  check: () => Promise<T> | T,
  withinMs = PATIENCE_MS,
  everyMs = 100,
): Promise<T> {
  for (let waited = 0; ; ) {
    const began = performance.now();
    try {
      return await check();
    } catch (error) {
      if (waited >= withinMs * SLOWNESS) throw error;
    }
    await sleep(everyMs);
    waited += Math.min(performance.now() - began, CHECK_MS + everyMs);
  }
}

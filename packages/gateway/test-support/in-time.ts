/** Waits for events in tests. An event that does not come fails an assertion before the test's own time limit. */
import assert, { AssertionError } from "node:assert";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";

const CHECK_MS = 50;

/** Counts checks instead of time, so that a pause of this whole process does not count as lateness. */
export async function inTime<T>(coming: Promise<T>, what: string, withinMs = 15_000): Promise<T> {
  const late = Promise.withResolvers<never>();
  let checksLeft = Math.ceil((withinMs * SLOWNESS) / CHECK_MS);
  const timer = setInterval(() => {
    if (--checksLeft <= 0) late.reject(new AssertionError({ message: `${what} did not come in time` }));
  }, CHECK_MS);
  return await Promise.race([coming, late.promise]).finally(() => clearInterval(timer));
}

const MAX_CHECKS = 3_000 * SLOWNESS;

/** Resolves when the condition holds, which is checked every 5 ms. */
export async function until(holds: () => boolean): Promise<void> {
  for (let checksLeft = MAX_CHECKS; !holds(); checksLeft--) {
    assert(checksLeft > 0, `this did not come to hold: ${holds}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

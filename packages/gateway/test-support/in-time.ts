/** Waits for an event of a test. If it does not come, an assertion says so before the test's time is up. */
import assert, { AssertionError } from "node:assert";

const LOOK_MS = 50;

/** A pause of this process counts for one look: what came meanwhile is heard first. */
export async function inTime<T>(coming: Promise<T>, what: string, withinMs = 15_000): Promise<T> {
  const late = Promise.withResolvers<never>();
  let looks = Math.ceil(withinMs / LOOK_MS);
  const looking = setInterval(() => {
    if (--looks <= 0) late.reject(new AssertionError({ message: `${what} did not come in time` }));
  }, LOOK_MS);
  return await Promise.race([coming, late.promise]).finally(() => clearInterval(looking));
}

const LOOKS = 3_000;

/** Until it holds. */
export async function until(holds: () => boolean): Promise<void> {
  for (let looks = LOOKS; !holds(); looks--) {
    assert(looks > 0, `this did not come to hold: ${holds}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

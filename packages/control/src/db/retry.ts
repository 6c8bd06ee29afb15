import { sleep } from "@vivarium/kit/clock";
import { isStoreUnavailable } from "./postgres-errors.ts";

const PAUSE_MS = 500;

/** Repeats an idempotent write while the database is unavailable, for work that no caller waits for. */
export async function untilStored<T>(write: () => Promise<T>, attempts = 60): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await write();
    } catch (error) {
      if (!isStoreUnavailable(error) || attempt >= attempts) throw error;
      await sleep(PAUSE_MS);
    }
  }
}

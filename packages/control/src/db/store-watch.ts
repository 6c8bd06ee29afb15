import { ping } from "./ping.ts";
import type { Database } from "./pool.ts";

/**
 * A store that was away for longer than this let leases lapse whose processes live: the shortest last 5 s, and are
 * renewed every third of that.
 */
const GAP_MS = 4_000;
/** Time for every process to reach the store again, and to renew: a run's lease is renewed every 10 s. */
const RENEWED_MS = 15_000;

/** Knows whether a lease that lapsed tells of a process that died, or of a store that nobody could reach. */
export class StoreWatch {
  readonly #db: Database;
  readonly #now: () => number;
  #heardAt: number;
  #staleUntil = Number.NEGATIVE_INFINITY;

  constructor({ db, now = () => performance.now() }: { db: Database; now?: () => number }) {
    this.#db = db;
    this.#now = now;
    this.#heardAt = now();
  }

  /** One sign of life, which is to be asked for about every second. */
  async look(): Promise<void> {
    await ping(this.#db);
    if (this.#isGap()) this.#staleUntil = this.#now() + RENEWED_MS;
    this.#heardAt = this.#now();
  }

  /** Whether leases may have lapsed although their processes live, so that nobody is to act on one yet. */
  areLeasesStale(): boolean {
    return this.#isGap() || this.#now() < this.#staleUntil;
  }

  #isGap(): boolean {
    return this.#now() - this.#heardAt > GAP_MS;
  }
}

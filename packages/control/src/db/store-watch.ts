import type { Database } from "./pool.ts";
import { storeNow } from "./store-now.ts";

/**
 * A store that was away for longer than this let leases lapse whose processes live: the shortest last 5 s, and are
 * renewed every third of that, so that one has 3.33 s left when the next renewal fails.
 */
const GAP_MS = 3_300;
/** Time for every process to reach the store again, and to renew: a run's lease is renewed every 10 s. */
const RENEWED_MS = 15_000;

interface WatchSettings {
  /** A pool of its own: where all connections of another are in use, the store is not away. */
  db: Database;
  /** No other process can hold a lease, so that one which lapsed before this one began is nobody's. */
  isAlone?: boolean;
  now?: () => number;
  /** Goes on while the host is suspended, during which the other clock stands still. */
  wallNow?: () => number;
}

interface Sign {
  at: number;
  wallAt: number;
  /** The store's own time, by which leases are measured. */
  storeTime: Date;
}

/** Knows whether a lease that lapsed tells of a process that died, or of a store that nobody could reach. */
export class StoreWatch {
  readonly #db: Database;
  readonly #isAlone: boolean;
  readonly #now: () => number;
  readonly #wallNow: () => number;
  #heard: Sign | undefined;
  #staleUntil = Number.NEGATIVE_INFINITY;

  constructor({ db, isAlone = false, now = () => performance.now(), wallNow = Date.now }: WatchSettings) {
    this.#db = db;
    this.#isAlone = isAlone;
    this.#now = now;
    this.#wallNow = wallNow;
  }

  /** One sign of life, which is to be asked for about every second. */
  async look(): Promise<void> {
    const storeTime = await storeNow(this.#db);
    const isGap = this.#heard ? this.#isGap() : !this.#isAlone;
    if (isGap) this.#staleUntil = this.#now() + RENEWED_MS;
    this.#heard = { at: this.#now(), wallAt: this.#wallNow(), storeTime };
  }

  /** Whether leases may have lapsed although their processes live, so that nobody is to act on one yet. */
  areLeasesStale(): boolean {
    return this.#isGap() || this.#now() < this.#staleUntil;
  }

  /**
   * The instant before which a lease must have ended to be acted on: when the store last answered, so that a query which
   * it answers late finds no lease lapsed that could not be renewed meanwhile. Undefined while leases are stale.
   */
  lapsedBefore(): Date | undefined {
    return this.areLeasesStale() ? undefined : this.#heard?.storeTime;
  }

  /** A process that has not reached the store yet knows nothing of the time before. */
  #isGap(): boolean {
    if (!this.#heard) return true;
    const { at, wallAt } = this.#heard;
    return Math.max(this.#now() - at, this.#wallNow() - wallAt) > GAP_MS;
  }
}

/** Distinguishes the two reasons for a lapsed lease: its process died, or the store was unreachable. */
import type { Database } from "./pool.ts";
import { readLeaseTime } from "./time.ts";

/**
 * Longest time between two answers of the store that is not an outage. The shortest lease lasts 5 s and is renewed
 * every third of that, so 3.33 s are left when the next renewal fails.
 */
const GAP_MS = 3_300;
/** Time after an outage in which every process renews its leases. A run's lease is renewed every 10 s. */
const RENEWED_MS = 15_000;

interface WatchSettings {
  /** A pool of its own: if all connections of a shared pool were in use, the store would look unreachable. */
  db: Database;
  /** No other process can hold a lease. So a lease that lapsed before this process started has no owner. */
  isAlone?: boolean;
  now?: () => number;
  /** The wall clock. Unlike the monotonic clock it continues while the host is suspended. */
  wallNow?: () => number;
}

/** An answer of the store. */
interface Answer {
  at: number;
  wallAt: number;
  /** The store's own time, which measures leases. */
  storeTime: Date;
}

export class StoreWatch {
  readonly #db: Database;
  readonly #isAlone: boolean;
  readonly #now: () => number;
  readonly #wallNow: () => number;
  #heard: Answer | undefined;
  #staleUntil = Number.NEGATIVE_INFINITY;

  constructor({ db, isAlone = false, now = () => performance.now(), wallNow = Date.now }: WatchSettings) {
    this.#db = db;
    this.#isAlone = isAlone;
    this.#now = now;
    this.#wallNow = wallNow;
  }

  /** Asks the store for its time. Call it about every second: a longer gap counts as an outage. */
  async look(): Promise<void> {
    const storeTime = await readLeaseTime(this.#db);
    const isGap = this.#heard ? this.#isGap() : !this.#isAlone;
    if (isGap) this.#staleUntil = this.#now() + RENEWED_MS;
    this.#heard = { at: this.#now(), wallAt: this.#wallNow(), storeTime };
  }

  /** Whether leases may have lapsed although their processes live. Do not act on a lapsed lease then. */
  areLeasesStale(): boolean {
    return this.#isGap() || this.#now() < this.#staleUntil;
  }

  /**
   * A lease may be acted on if it ended before this instant: the store's last answer. A query that the store answers
   * late then finds no lease that could not be renewed meanwhile. Undefined while leases are stale.
   */
  lapsedBefore(): Date | undefined {
    return this.areLeasesStale() ? undefined : this.#heard?.storeTime;
  }

  /** Whether the store's last answer is too old, or this process has had none yet. */
  #isGap(): boolean {
    if (!this.#heard) return true;
    const { at, wallAt } = this.#heard;
    return Math.max(this.#now() - at, this.#wallNow() - wallAt) > GAP_MS;
  }
}

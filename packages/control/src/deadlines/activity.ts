/** Records when sessions were last used, in batches. */
import type { Log } from "@vivarium/kit/log";
import type { Database } from "../db/pool.ts";
import type { SessionRow } from "../sessions/store.ts";
import { saveActivity } from "./store.ts";

/** Counts one guest operation as in flight, from `Activity.lease` until `release`. */
export interface ActivityLease {
  /** Called when the session is known to be the caller's: from then on other processes learn of its activity. */
  confirm: () => void;
  /** Ends the lease. Idempotent. */
  release: () => void;
}
type OwnedSession = Pick<SessionRow, "id" | "org_id">;

/** How often the activity of an operation in flight is recorded again. */
const IN_FLIGHT_REFRESH_MS = 1_000;

/**
 * Batches writes of `last_active_at`, so that not every operation costs a write. Only times are stored, so the activity
 * of a process that died expires by itself.
 */
export class Activity {
  readonly #deps: { db: Database; log: Log };
  /** Last use of each session, not yet flushed. */
  #unflushed = new Map<string, Instant>();
  /** Batches that are being written: readers may still see the older value in the row. */
  readonly #flushing = new Set<Map<string, Instant>>();
  /** Sessions whose last operation in flight has ended since the last flush. */
  readonly #released = new Set<string>();
  readonly #inFlight = new Map<string, { count: number; refreshedAt: number }>();
  /** Number of unconfirmed operations by organisation and session id. */
  readonly #pending = new Map<string, number>();

  /** Serialises flushes. */
  #flushed: Promise<void> = Promise.resolve();

  constructor(deps: { db: Database; log: Log }) {
    this.#deps = deps;
  }

  /** Records a use of a session that is known to exist. */
  touch(sessionId: string): void {
    this.#unflushed.set(sessionId, instant());
  }

  /**
   * Keeps the session from being idle until `release`. Hazard: before `confirm`, the id may be unknown or belong to
   * another organisation. Until then the lease counts for this organisation's session only, and nothing is written.
   */
  lease(orgId: string, sessionId: string): ActivityLease {
    const key = pendingKey(orgId, sessionId);
    this.#pending.set(key, (this.#pending.get(key) ?? 0) + 1);
    let end = () => this.#dropPending(key);
    return {
      confirm: () => {
        end();
        end = this.#countInFlight(sessionId);
      },
      release: () => {
        end();
        end = () => {};
      },
    };
  }

  #dropPending(key: string): void {
    const left = (this.#pending.get(key) ?? 1) - 1;
    if (left === 0) this.#pending.delete(key);
    else this.#pending.set(key, left);
  }

  #countInFlight(sessionId: string): () => void {
    const inFlight = this.#inFlight.get(sessionId) ?? { count: 0, refreshedAt: performance.now() };
    inFlight.count += 1;
    this.#inFlight.set(sessionId, inFlight);
    this.touch(sessionId);
    return () => {
      inFlight.count -= 1;
      if (inFlight.count === 0) {
        this.#inFlight.delete(sessionId);
        this.#released.add(sessionId);
      }
      this.touch(sessionId);
    };
  }

  /** Whether this process knows of activity that may not be in the row yet. */
  hasUnflushed(session: OwnedSession): boolean {
    return this.isInUse(session) || latest(this.#known(), session.id) !== undefined;
  }

  /** Whether a guest operation of this process is in flight, confirmed or not. */
  isInUse(session: OwnedSession): boolean {
    return this.#inFlight.has(session.id) || this.#pending.has(pendingKey(session.org_id, session.id));
  }

  /** Activity not flushed yet. Call before reading rows, so that either the row or this has the latest time. */
  unflushed(): (sessionId: string) => Date | undefined {
    const known = this.#known();
    return (sessionId) =>
      this.#inFlight.has(sessionId) ? new Date() : latest([...known, ...this.#known()], sessionId)?.shown;
  }

  /** Resolves once all activity before this call is written, or its write has failed. */
  flush(): Promise<void> {
    this.#flushed = this.#flushed.then(() => this.#flush());
    return this.#flushed;
  }

  async #flush(): Promise<void> {
    const now = performance.now();
    this.#refreshInFlight(now);
    if (this.#unflushed.size === 0) return;
    const batch = this.#unflushed;
    this.#unflushed = new Map();
    this.#flushing.add(batch);
    try {
      const entries = [...batch].map(([id, at]) => ({ ...activityEntry(id, at, now), use: this.#useOf(id) }));
      await saveActivity(this.#deps.db, entries);
    } catch (err) {
      for (const [id, at] of batch) if (!this.#unflushed.has(id)) this.#unflushed.set(id, at);
      this.#deps.log.warn({ err }, "times of last activity could not be written yet");
    } finally {
      this.#flushing.delete(batch);
    }
  }

  #useOf(sessionId: string): "busy" | "done" | undefined {
    const wasReleased = this.#released.delete(sessionId);
    if (this.#inFlight.has(sessionId)) return "busy";
    return wasReleased ? "done" : undefined;
  }

  /** Oldest first. */
  #known(): Map<string, Instant>[] {
    return [...this.#flushing, this.#unflushed];
  }

  #refreshInFlight(now: number): void {
    for (const [id, inFlight] of this.#inFlight) {
      if (now - inFlight.refreshedAt < IN_FLIGHT_REFRESH_MS) continue;
      inFlight.refreshedAt = now;
      this.touch(id);
    }
  }
}

function latest(known: readonly Map<string, Instant>[], sessionId: string): Instant | undefined {
  return known.findLast((batch) => batch.has(sessionId))?.get(sessionId);
}

function pendingKey(orgId: string, sessionId: string): string {
  return `${orgId} ${sessionId}`;
}

/** An instant on two clocks: wall clock for records, monotonic for ages, which clock changes must not alter. */
interface Instant {
  shown: Date;
  monotonicMs: number;
}

function instant(): Instant {
  return { shown: new Date(), monotonicMs: performance.now() };
}

function activityEntry(id: string, { shown, monotonicMs }: Instant, now: number) {
  return { id, at: shown, ageMs: now - monotonicMs };
}

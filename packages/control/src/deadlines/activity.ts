import type { Log } from "@vivarium/kit/log";
import type { Database } from "../db/pool.ts";
import type { SessionRow } from "../sessions/store.ts";
import { saveActivity } from "./store.ts";

/** A guest operation in flight, or one that looks for its session. */
export interface Hold {
  /** The session is the caller's: from now on it is not idle, and others are told. */
  found: () => void;
  /** Again does nothing. */
  release: () => void;
}
type Owned = Pick<SessionRow, "id" | "org_id">;

/** How often a guest operation in flight is written down again as a sign of life. */
const HOLD_REFRESH_MS = 1_000;

/**
 * Collects `last_active_at` of many operations, so that each does not cost a write of its own. Nothing is stored but a
 * time: a process that dies leaves no session held awake.
 */
export class Activity {
  readonly #deps: { db: Database; log: Log };
  /** When each session was last used. */
  #seen = new Map<string, Instant>();
  /** What is being written: readers of the row may still find the time before. */
  readonly #writing = new Set<Map<string, Instant>>();
  /** Sessions whose last operation has ended since they were written down. */
  readonly #released = new Set<string>();
  readonly #held = new Map<string, { count: number; writtenAt: number }>();
  /** How many operations of an organisation look for a session of this id. */
  readonly #hoped = new Map<string, number>();

  /** One after the other: nothing is left behind in one that is under way. */
  #flushed: Promise<void> = Promise.resolve();

  constructor(deps: { db: Database; log: Log }) {
    this.#deps = deps;
  }

  /** Of a session that is known to be there. */
  touch(sessionId: string): void {
    this.#seen.set(sessionId, instant());
  }

  /**
   * A guest operation of this organisation is in flight until `release`: the session is not idle meanwhile. Until the
   * session was `found` to be the caller's, that holds for a session of the organisation alone, and nothing is written:
   * the id may be another's, or anything.
   */
  hold(orgId: string, sessionId: string): Hold {
    const hoped = hopedKey(orgId, sessionId);
    this.#hoped.set(hoped, (this.#hoped.get(hoped) ?? 0) + 1);
    let end = () => this.#dropHope(hoped);
    return {
      found: () => {
        end();
        end = this.#keepAwake(sessionId);
      },
      release: () => {
        end();
        end = () => {};
      },
    };
  }

  #dropHope(hoped: string): void {
    const left = (this.#hoped.get(hoped) ?? 1) - 1;
    if (left === 0) this.#hoped.delete(hoped);
    else this.#hoped.set(hoped, left);
  }

  #keepAwake(sessionId: string): () => void {
    const held = this.#held.get(sessionId) ?? { count: 0, writtenAt: performance.now() };
    held.count += 1;
    this.#held.set(sessionId, held);
    this.touch(sessionId);
    return () => {
      held.count -= 1;
      if (held.count === 0) {
        this.#held.delete(sessionId);
        this.#released.add(sessionId);
      }
      this.touch(sessionId);
    };
  }

  /** True when this process knows of activity that the row does not tell yet. */
  isUnwritten(session: Owned): boolean {
    return this.isHeld(session) || this.#unwritten(session.id) !== undefined;
  }

  /** True while a guest operation of this process is in flight, or about to be. */
  isHeld(session: Owned): boolean {
    return this.#held.has(session.id) || this.#hoped.has(hopedKey(session.org_id, session.id));
  }

  /**
   * What is not written by now, for readers in this process of rows that they read after this call: what is written
   * before their read is in the row, and stays told here.
   */
  pending(): (sessionId: string) => Date | undefined {
    const known = this.#known();
    return (sessionId) =>
      this.#held.has(sessionId) ? new Date() : latest([...known, ...this.#known()], sessionId)?.shown;
  }

  /** Resolves once everything that was seen before this call is written down, or could not be. */
  flush(): Promise<void> {
    this.#flushed = this.#flushed.then(() => this.#flush());
    return this.#flushed;
  }

  async #flush(): Promise<void> {
    const now = performance.now();
    this.#touchHeld(now);
    if (this.#seen.size === 0) return;
    const seen = this.#seen;
    this.#seen = new Map();
    this.#writing.add(seen);
    try {
      const sightings = [...seen].map(([id, at]) => ({ ...sighting(id, at, now), use: this.#useOf(id) }));
      await saveActivity(this.#deps.db, sightings);
    } catch (err) {
      for (const [id, at] of seen) if (!this.#seen.has(id)) this.#seen.set(id, at);
      this.#deps.log.warn({ err }, "times of last activity could not be written yet");
    } finally {
      this.#writing.delete(seen);
    }
  }

  #useOf(sessionId: string): "busy" | "done" | undefined {
    const wasReleased = this.#released.delete(sessionId);
    if (this.#held.has(sessionId)) return "busy";
    return wasReleased ? "done" : undefined;
  }

  #unwritten(sessionId: string): Instant | undefined {
    return latest(this.#known(), sessionId);
  }

  /** In the order in which they were seen. */
  #known(): Map<string, Instant>[] {
    return [...this.#writing, this.#seen];
  }

  #touchHeld(now: number): void {
    for (const [id, held] of this.#held) {
      if (now - held.writtenAt < HOLD_REFRESH_MS) continue;
      held.writtenAt = now;
      this.#seen.set(id, instant());
    }
  }
}

function latest(known: readonly Map<string, Instant>[], sessionId: string): Instant | undefined {
  return known.findLast((seen) => seen.has(sessionId))?.get(sessionId);
}

function hopedKey(orgId: string, sessionId: string): string {
  return `${orgId} ${sessionId}`;
}

/** What readers are shown, and what an age can be told from although somebody sets the clock. */
interface Instant {
  shown: Date;
  monotonicMs: number;
}

function instant(): Instant {
  return { shown: new Date(), monotonicMs: performance.now() };
}

function sighting(id: string, { shown, monotonicMs }: Instant, now: number) {
  return { id, at: shown, ageMs: now - monotonicMs };
}

import type { Log } from "@vivarium/kit/log";
import type { Database } from "../db/pool.ts";
import { saveActivity } from "./deadlines-store.ts";

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

  constructor(deps: { db: Database; log: Log }) {
    this.#deps = deps;
  }

  touch(sessionId: string): void {
    this.#seen.set(sessionId, instant());
  }

  /** A guest operation is in flight until the returned function is called: the session is not idle meanwhile. */
  hold(sessionId: string): () => void {
    const held = this.#held.get(sessionId) ?? { count: 0, writtenAt: performance.now() };
    held.count += 1;
    this.#held.set(sessionId, held);
    this.touch(sessionId);
    let isOver = false;
    return () => {
      if (isOver) return;
      isOver = true;
      held.count -= 1;
      if (held.count === 0) {
        this.#held.delete(sessionId);
        this.#released.add(sessionId);
      }
      this.touch(sessionId);
    };
  }

  /** True when this process knows of activity that the row does not tell yet. */
  isUnwritten(sessionId: string): boolean {
    return this.#held.has(sessionId) || this.#unwritten(sessionId) !== undefined;
  }

  /** True while a guest operation of this process is in flight. */
  isHeld(sessionId: string): boolean {
    return this.#held.has(sessionId);
  }

  /** What is not written yet, for readers of the row in this process. */
  pendingSince(sessionId: string): Date | undefined {
    return this.#held.has(sessionId) ? new Date() : this.#unwritten(sessionId)?.shown;
  }

  async flush(): Promise<void> {
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
    if (this.isHeld(sessionId)) return "busy";
    return wasReleased ? "done" : undefined;
  }

  /** The latest of them. */
  #unwritten(sessionId: string): Instant | undefined {
    const known = [...this.#writing, this.#seen].map((seen) => seen.get(sessionId));
    return known.findLast((at) => at !== undefined);
  }

  #touchHeld(now: number): void {
    for (const [id, held] of this.#held) {
      if (now - held.writtenAt < HOLD_REFRESH_MS) continue;
      held.writtenAt = now;
      this.#seen.set(id, instant());
    }
  }
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

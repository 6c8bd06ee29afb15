import type { Log } from "@vivarium/kit/log";
import type { Database } from "../db/pool.ts";
import { saveActivity } from "./store.ts";

/** How often a guest operation in flight is written down again as a sign of life. */
const HOLD_REFRESH_MS = 1_000;

/**
 * Collects `last_active_at` of many operations, so that each does not cost a write of its own. Nothing is stored but a
 * time: a process that dies leaves no session held awake.
 */
export class Activity {
  readonly #deps: { db: Database; log: Log };
  /** When each session was last used, by this process's monotonic clock. */
  #seen = new Map<string, number>();
  readonly #held = new Map<string, { count: number; writtenAt: number }>();

  constructor(deps: { db: Database; log: Log }) {
    this.#deps = deps;
  }

  touch(sessionId: string): void {
    this.#seen.set(sessionId, performance.now());
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
      if (held.count === 0) this.#held.delete(sessionId);
      this.touch(sessionId);
    };
  }

  /** True when this process knows of activity that the row does not tell yet. */
  isUnwritten(sessionId: string): boolean {
    return this.#held.has(sessionId) || this.#seen.has(sessionId);
  }

  /** What is not written yet, for readers of the row in this process. */
  pendingSince(sessionId: string): Date | undefined {
    const at = this.#held.has(sessionId) ? performance.now() : this.#seen.get(sessionId);
    return at === undefined ? undefined : new Date(Date.now() - (performance.now() - at));
  }

  async flush(): Promise<void> {
    const now = performance.now();
    this.#touchHeld(now);
    if (this.#seen.size === 0) return;
    const seen = this.#seen;
    this.#seen = new Map();
    try {
      await saveActivity(this.#deps.db, new Map([...seen].map(([id, at]) => [id, now - at])));
    } catch (err) {
      for (const [id, at] of seen) if (!this.#seen.has(id)) this.#seen.set(id, at);
      this.#deps.log.warn({ err }, "times of last activity could not be written yet");
    }
  }

  #touchHeld(now: number): void {
    for (const [id, held] of this.#held) {
      if (now - held.writtenAt < HOLD_REFRESH_MS) continue;
      held.writtenAt = now;
      this.#seen.set(id, now);
    }
  }
}

import type { Log } from "@vivarium/kit/log";
import type { Database } from "../db/pool.ts";
import { saveActivity } from "./store.ts";

/** Collects `last_active_at` of many operations, so that each does not cost a write of its own. */
export class Activity {
  readonly #deps: { db: Database; log: Log };
  #seen = new Map<string, Date>();

  constructor(deps: { db: Database; log: Log }) {
    this.#deps = deps;
  }

  touch(sessionId: string): void {
    this.#seen.set(sessionId, new Date());
  }

  /** What is not written yet, for readers of the row in this process. */
  pendingSince(sessionId: string): Date | undefined {
    return this.#seen.get(sessionId);
  }

  async flush(): Promise<void> {
    if (this.#seen.size === 0) return;
    const seen = this.#seen;
    this.#seen = new Map();
    try {
      await saveActivity(this.#deps.db, seen);
    } catch (err) {
      for (const [id, at] of seen) if (!this.#seen.has(id)) this.#seen.set(id, at);
      this.#deps.log.warn({ err }, "times of last activity could not be written yet");
    }
  }
}

/** Shares one wake per session among all its visitors, and backs off after a refusal. */
import type { WakeOutcome } from "@vivarium/contract/gateway";

/** How long a refusal is reused. */
const REST_MS = 2_000;
/** How long a success is reused: the tables with the machine arrive at about the same time. */
const LIVE_REST_MS = 200;
const NOT_REACHED: WakeOutcome = { result: "refused", status: 503, retry_after_s: 5 };

export class SharedWakes {
  readonly #wake: (sessionId: string) => Promise<WakeOutcome>;
  readonly #known = new Map<string, Promise<WakeOutcome>>();

  constructor(wake: (sessionId: string) => Promise<WakeOutcome>) {
    this.#wake = wake;
  }

  /** Shares the outcome, for `REST_MS` or `LIVE_REST_MS` after it came, among all callers. Never rejects. */
  request(sessionId: string): Promise<WakeOutcome> {
    const known = this.#known.get(sessionId);
    if (known) return known;
    const outcome = this.#wake(sessionId).catch(() => NOT_REACHED);
    void outcome.then(({ result }) => {
      const restMs = result === "refused" ? REST_MS : LIVE_REST_MS;
      setTimeout(() => this.#known.delete(sessionId), restMs).unref();
    });
    this.#known.set(sessionId, outcome);
    return outcome;
  }
}

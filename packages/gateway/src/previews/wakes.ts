/** One wake per session however many visitors wait, and a pause between two, so that refusals cause no storm. */
import type { WakeOutcome } from "@vivarium/contract/gateway";

const REST_MS = 2_000;
const NOT_REACHED: WakeOutcome = { result: "refused", status: 503, retry_after_s: 5 };

export class Wakes {
  readonly #wake: (sessionId: string) => Promise<WakeOutcome>;
  readonly #known = new Map<string, Promise<WakeOutcome>>();

  constructor(wake: (sessionId: string) => Promise<WakeOutcome>) {
    this.#wake = wake;
  }

  /** Never rejects. An outcome is everybody's who asks until two seconds after it came. */
  request(sessionId: string): Promise<WakeOutcome> {
    const known = this.#known.get(sessionId);
    if (known) return known;
    const outcome = this.#wake(sessionId)
      .catch(() => NOT_REACHED)
      .finally(() => setTimeout(() => this.#known.delete(sessionId), REST_MS).unref());
    this.#known.set(sessionId, outcome);
    return outcome;
  }
}

/** A rate limit on questions over TCP. The kernel limits packets and new connections, but one connection carries many questions. */

const PER_SECOND = 50;
const BURST = 200;
const TOKEN_MS = 1000 / PER_SECOND;

export class QuestionRateLimit {
  /** When the whole burst is available again. */
  #fullAt = Number.NEGATIVE_INFINITY;

  /** Takes one token. Returns the milliseconds until it is available. */
  take(now = performance.now()): number {
    this.#fullAt = Math.max(this.#fullAt, now) + TOKEN_MS;
    return Math.max(0, this.#fullAt - now - BURST * TOKEN_MS);
  }
}

/** Limits a machine's DNS questions over TCP with a token bucket, since one TCP connection can carry many. */

const PER_SECOND = 50;
const BURST = 200;
const TOKEN_MS = 1000 / PER_SECOND;

export class QuestionRateLimit {
  /** When the whole burst is available again, in milliseconds of `performance.now()`. */
  #fullAt = Number.NEGATIVE_INFINITY;

  /** Reserves one token. Returns the milliseconds to wait for it. */
  take(now = performance.now()): number {
    this.#fullAt = Math.max(this.#fullAt, now) + TOKEN_MS;
    return Math.max(0, this.#fullAt - now - BURST * TOKEN_MS);
  }
}

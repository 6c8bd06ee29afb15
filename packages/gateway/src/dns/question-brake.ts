/** A brake on questions over TCP: the kernel's counts packets and new connections, and one connection carries many. */

const PER_SECOND = 50;
const BURST = 200;
const TOKEN_MS = 1000 / PER_SECOND;

export class QuestionBrake {
  /** When all of the burst is there again. */
  #fullAt = Number.NEGATIVE_INFINITY;

  /** Takes a question's token: the milliseconds until it is there. */
  take(now = performance.now()): number {
    this.#fullAt = Math.max(this.#fullAt, now) + TOKEN_MS;
    return Math.max(0, this.#fullAt - now - BURST * TOKEN_MS);
  }
}

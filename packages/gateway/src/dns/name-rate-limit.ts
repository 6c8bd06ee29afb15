/** A rate limit on tunnels: only names leave by DNS, so the number of different names in an hour is limited. */

const MAX_NAMES = 5_000;
const WINDOW_MS = 60 * 60 * 1000;

export class NameRateLimit {
  #names = new Set<string>();
  #since = Number.NEGATIVE_INFINITY;

  /** False once too many other names were asked for. Names that were asked for before stay admitted. */
  admits(name: string, now = performance.now()): boolean {
    if (now - this.#since >= WINDOW_MS) {
      this.#names = new Set();
      this.#since = now;
    }
    if (this.#names.has(name)) return true;
    if (this.#names.size >= MAX_NAMES) return false;
    this.#names.add(name);
    return true;
  }
}

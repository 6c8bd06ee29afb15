/** Limits how many different names a machine asks for in an hour, since names can carry data out (a DNS tunnel). */

const MAX_NAMES = 5_000;
const WINDOW_MS = 60 * 60 * 1000;

export class NameRateLimit {
  #names = new Set<string>();
  #since = Number.NEGATIVE_INFINITY;

  /** False for a new name beyond the limit. Names that were asked for within the hour stay admitted. */
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

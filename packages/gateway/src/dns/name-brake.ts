/** A brake on tunnels: names are the only thing that leaves by DNS, so only so many different ones do in an hour. */

const MAX_NAMES = 5_000;
const WINDOW_MS = 60 * 60 * 1000;

export class NameBrake {
  #names = new Set<string>();
  #since = Number.NEGATIVE_INFINITY;

  /** False once too many other names were asked for; names asked before go on. */
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

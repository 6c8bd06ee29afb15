/** Bounds the rate of work that is counted in bytes, and counts it. */
import { sleep } from "./clock.ts";

const CLOCK = { now: () => performance.now(), sleep: (ms: number) => sleep(ms) };

export class Pace {
  readonly #bytesPerSecond: number;
  readonly #clock: typeof CLOCK;
  #freeAt = 0;
  /** All bytes that were taken so far. */
  bytes = 0;

  /** `bytesPerSecond`: infinity for no bound. */
  constructor(bytesPerSecond: number, clock = CLOCK) {
    this.#bytesPerSecond = bytesPerSecond;
    this.#clock = clock;
  }

  /** Resolves once the bytes that were taken before have had their time. */
  async take(bytes: number): Promise<void> {
    const now = this.#clock.now();
    const start = Math.max(now, this.#freeAt);
    this.#freeAt = start + (bytes / this.#bytesPerSecond) * 1000;
    this.bytes += bytes;
    if (start > now) await this.#clock.sleep(start - now);
  }
}

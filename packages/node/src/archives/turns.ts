/** Lets a bounded number of jobs run at once, in the order in which they came. */
export class Turns {
  readonly #most: number;
  readonly #waiting: (() => void)[] = [];
  #running = 0;

  constructor(most: number) {
    this.#most = most;
  }

  /** A job whose signal is aborted before its turn does not run. */
  async run<T>(signal: AbortSignal, job: () => Promise<T>): Promise<T> {
    await this.#come(signal);
    try {
      signal.throwIfAborted();
      return await job();
    } finally {
      this.#running--;
      this.#next();
    }
  }

  async #come(signal: AbortSignal): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.push(resolve);
    // A job that is no longer wanted takes its turn at once, and gives it back.
    const leave = () => {
      const at = this.#waiting.indexOf(resolve);
      if (at < 0) return;
      this.#waiting.splice(at, 1);
      this.#running++;
      resolve();
    };
    signal.addEventListener("abort", leave, { once: true });
    if (signal.aborted) leave();
    this.#next();
    await promise.finally(() => signal.removeEventListener("abort", leave));
  }

  #next(): void {
    while (this.#running < this.#most) {
      const begin = this.#waiting.shift();
      if (!begin) return;
      this.#running++;
      begin();
    }
  }
}

/** Runs work one run at a time. Calls that arrive during a run share the next run. */
export class Coalesced {
  readonly #work: () => Promise<void>;
  #running: Promise<void> | undefined;
  #next: Promise<void> | undefined;

  constructor(work: () => Promise<void>) {
    this.#work = work;
  }

  /** Settles with a run that starts after this call. */
  run(): Promise<void> {
    this.#next ??= this.#runAfter(this.#running ?? Promise.resolve());
    return this.#next;
  }

  /** Resolves once no run is in progress or waiting. Failures go to the callers of `run`. */
  async idle(): Promise<void> {
    await Promise.allSettled([this.#running, this.#next]);
  }

  async #runAfter(running: Promise<void>): Promise<void> {
    await running.catch(() => undefined);
    this.#running = this.#next;
    this.#next = undefined;
    await this.#work();
  }
}

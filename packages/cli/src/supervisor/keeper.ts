import { sleep } from "@vivarium/kit/clock";
import type { Running } from "./running.ts";

const FIRST_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 5000;
/** Having run this long, a process counts as healthy again: its next death is answered at once. */
const HEALTHY_MS = 10_000;

/** Keeps one process running: starts it, and again after every death, ever more slowly while it dies young. */
export class Keeper {
  readonly name: string;
  readonly #launch: () => Promise<Running>;
  readonly #report: (message: string) => void;
  readonly #stopping = new AbortController();
  #current: Running | undefined;
  #loop: Promise<void> = Promise.resolve();
  #deaths = 0;

  constructor(name: string, deps: { launch: () => Promise<Running>; report: (message: string) => void }) {
    this.name = name;
    this.#launch = deps.launch;
    this.#report = deps.report;
  }

  /** How often it has died since it was last healthy. */
  get recentDeaths(): number {
    return this.#deaths;
  }

  /** Resolves when the process was launched for the first time. */
  start(): Promise<void> {
    return new Promise((resolve) => {
      this.#loop = this.#keepRunning(resolve);
    });
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#current?.stop();
    await this.#loop;
  }

  async #keepRunning(onLaunched: () => void): Promise<void> {
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      const startedAt = performance.now();
      const ending = await this.#runOnce(onLaunched);
      if (signal.aborted) return;
      this.#deaths = performance.now() - startedAt > HEALTHY_MS ? 1 : this.#deaths + 1;
      const pauseMs = Math.min(FIRST_PAUSE_MS * 2 ** (this.#deaths - 1), LONGEST_PAUSE_MS);
      this.#report(`${this.name} ended (${ending}); starting it again in ${pauseMs / 1000} s`);
      await sleep(pauseMs, signal);
    }
  }

  async #runOnce(onLaunched: () => void): Promise<string> {
    try {
      this.#current = await this.#launch();
      // stop() may have come while the launch was under way and have found nothing to stop.
      if (this.#stopping.signal.aborted) await this.#current.stop();
      onLaunched();
      return await this.#current.ended;
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    } finally {
      this.#current = undefined;
    }
  }
}

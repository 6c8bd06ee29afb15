import { sleep } from "@vivarium/kit/clock";
import { messageOf } from "@vivarium/kit/unknown-error";
import { CliError } from "../cli-error.ts";
import type { Running } from "./running.ts";

const FIRST_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 5000;
/** Having run this long, a process counts as healthy again: its next death is answered at once. */
const HEALTHY_MS = 10_000;
/** After so many deaths in a row the next launch is not expected to succeed. */
export const HOPELESS_DEATHS = 6;

export interface KeeperDeps {
  /** Starts the process. The signal aborts a launch that is no longer wanted. */
  launch: (signal: AbortSignal) => Promise<Running>;
  report: (message: string) => void;
}

/** Keeps one process running: starts it, and again after every death, ever more slowly while it dies young. */
export class Keeper {
  readonly name: string;
  readonly #deps: KeeperDeps;
  readonly #stopping = new AbortController();
  #current: Running | undefined;
  #loop: Promise<void> = Promise.resolve();
  #deaths = 0;

  constructor(name: string, deps: KeeperDeps) {
    this.name = name;
    this.#deps = deps;
  }

  /** How often it has died since it was last healthy. */
  get recentDeaths(): number {
    return this.#deaths;
  }

  /**
   * Resolves when the process was launched for the first time. Rejects when that is hopeless, or with the signal's
   * reason once the process is no longer wanted. It must be stopped afterwards in every case.
   */
  start(signal: AbortSignal): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const onAbort = () => reject(signal.reason);
    signal.addEventListener("abort", onAbort);
    if (signal.aborted) onAbort();
    else this.#loop = this.#keepRunning({ onLaunched: resolve, onHopeless: reject });
    return promise.finally(() => signal.removeEventListener("abort", onAbort));
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#current?.stop();
    await this.#loop;
  }

  async #keepRunning(callbacks: { onLaunched: () => void; onHopeless: (why: Error) => void }): Promise<void> {
    const { signal } = this.#stopping;
    let wasLaunched = false;
    const onLaunched = () => {
      wasLaunched = true;
      callbacks.onLaunched();
    };
    while (!signal.aborted) {
      const startedAt = performance.now();
      const ending = await this.#runOnce(onLaunched);
      if (signal.aborted) return;
      // A launch that failed was never healthy, however long it took.
      const wasHealthy = wasLaunched && performance.now() - startedAt > HEALTHY_MS;
      this.#deaths = wasHealthy ? 1 : this.#deaths + 1;
      if (!wasLaunched && this.#deaths >= HOPELESS_DEATHS)
        return callbacks.onHopeless(new CliError(`${this.name} cannot be started: ${ending}`));
      const pauseMs = Math.min(FIRST_PAUSE_MS * 2 ** (this.#deaths - 1), LONGEST_PAUSE_MS);
      this.#deps.report(`${this.name} ended (${ending}); starting it again in ${pauseMs / 1000} s`);
      await sleep(pauseMs, signal);
    }
  }

  async #runOnce(onLaunched: () => void): Promise<string> {
    try {
      this.#current = await this.#deps.launch(this.#stopping.signal);
      // stop() may have been called during the launch, and found nothing to stop.
      if (this.#stopping.signal.aborted) await this.#current.stop();
      onLaunched();
      return await this.#current.ended;
    } catch (error) {
      return messageOf(error);
    } finally {
      this.#current = undefined;
    }
  }
}

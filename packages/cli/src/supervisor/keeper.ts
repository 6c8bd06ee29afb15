/** Keeps one process of the service running. */
import { sleep } from "@vivarium/kit/clock";
import { messageOf } from "@vivarium/kit/unknown-error";
import { CliError } from "../cli-error.ts";
import type { Running, StopManner } from "./running.ts";

const FIRST_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 5000;
/** Milliseconds after which a running process counts as healthy: the back-off starts again at its next death. */
const HEALTHY_MS = 10_000;
/** Deaths after which a first start counts as hopeless. */
export const HOPELESS_DEATHS = 6;

export interface KeeperDeps {
  /** Starts the process. The signal aborts a launch that is no longer wanted. */
  launch: (signal: AbortSignal) => Promise<Running>;
  report: (message: string) => void;
}

/** Starts a process, and restarts it after every death, with back-off while it dies young. */
export class Keeper {
  readonly name: string;
  readonly #deps: KeeperDeps;
  readonly #stopping = new AbortController();
  #current: Running | undefined;
  #loop: Promise<void> = Promise.resolve();
  #deaths = 0;
  /** Deaths since the process was last healthy. */
  #earlyDeaths = 0;

  constructor(name: string, deps: KeeperDeps) {
    this.name = name;
    this.#deps = deps;
  }

  /** All deaths since the start. On a slow host a process may run long enough to count as healthy before it fails. */
  get deaths(): number {
    return this.#deaths;
  }

  /**
   * Resolves at the first launch. Rejects when launching is hopeless, or with the signal's reason once that aborts.
   * Call `stop` afterwards in every case.
   */
  start(signal: AbortSignal): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const onAbort = () => reject(signal.reason);
    signal.addEventListener("abort", onAbort);
    if (signal.aborted) onAbort();
    else this.#loop = this.#keepRunning({ onLaunched: resolve, onHopeless: reject });
    return promise.finally(() => signal.removeEventListener("abort", onAbort));
  }

  /** May be called again, to stop in another manner what is not stopped yet. */
  async stop(manner?: StopManner): Promise<void> {
    this.#stopping.abort();
    await this.#current?.stop(manner);
    await this.#loop;
  }

  async #keepRunning(callbacks: { onLaunched: () => void; onHopeless: (why: Error) => void }): Promise<void> {
    const { signal } = this.#stopping;
    let wasLaunched = false;
    while (!signal.aborted) {
      let launchedAt = Number.POSITIVE_INFINITY;
      const ending = await this.#runOnce(() => {
        wasLaunched = true;
        launchedAt = performance.now();
        callbacks.onLaunched();
      });
      if (signal.aborted) return;
      // A launch that failed was never healthy, however long it took.
      const wasHealthy = performance.now() - launchedAt > HEALTHY_MS;
      this.#deaths += 1;
      this.#earlyDeaths = wasHealthy ? 1 : this.#earlyDeaths + 1;
      if (!wasLaunched && this.#deaths >= HOPELESS_DEATHS)
        return callbacks.onHopeless(new CliError(`${this.name} cannot be started: ${ending}`));
      const pauseMs = Math.min(FIRST_PAUSE_MS * 2 ** (this.#earlyDeaths - 1), LONGEST_PAUSE_MS);
      this.#deps.report(`${this.name} ended (${ending}); starting it again in ${pauseMs / 1000} s`);
      await sleep(pauseMs, signal);
    }
  }

  async #runOnce(onLaunched: () => void): Promise<string> {
    try {
      this.#current = await this.#deps.launch(this.#stopping.signal);
      // stop() may have been called during the launch, when there was nothing to stop.
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

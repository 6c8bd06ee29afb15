/**
 * Verifies baselines of current versions once, before their first load or some time after the daemon's start: together they have
 * gigabytes, which a start would take long to read. Older versions, which are rarely used, are verified at each load.
 */
import type { Log } from "@vivarium/kit/log";
import { type Baseline, logRefused } from "./find-baselines.ts";
import { lacksFile, verifyFiles } from "./manifest.ts";
import { UnusableSnapshot } from "./page-sums.ts";
import { SumsThread } from "./sums-thread.ts";

interface CheckDeps {
  log: Log;
  onRefused: (baseline: Baseline) => void;
}

export class BaselineChecks {
  readonly #deps: CheckDeps;
  /** Verifications in progress, which all loads of the baseline wait for. */
  readonly #checks = new Map<Baseline, Promise<void>>();
  /** Not that of the captures, whose guests are stopped meanwhile: they must not wait for the gigabytes of a baseline. */
  #thread: SumsThread | undefined;
  /** By folder, the manifests of damaged baselines. One that is baked again has another. */
  readonly #refused = new Map<string, string>();

  constructor(deps: CheckDeps) {
    this.#deps = deps;
  }

  isRefused({ dir, manifest }: Baseline): boolean {
    return this.#refused.get(dir) === JSON.stringify(manifest);
  }

  /** The baseline once it is verified, if it has to be. Undefined for a damaged one; rejects if it cannot be read now. */
  async verified(baseline: Baseline | undefined): Promise<Baseline | undefined> {
    if (!baseline?.isCurrent || baseline.isVerified) return baseline;
    const check = this.#checks.get(baseline) ?? this.#check(baseline);
    this.#checks.set(baseline, check);
    return await check.then(
      () => baseline,
      (error: unknown) => {
        if (this.isRefused(baseline)) return undefined;
        throw error;
      },
    );
  }

  async #check(baseline: Baseline): Promise<void> {
    this.#thread ??= new SumsThread({ log: this.#deps.log });
    try {
      await verifyFiles(this.#thread, baseline);
      baseline.isVerified = true;
    } catch (error) {
      // Otherwise it could not be read now, which says nothing of it.
      if (error instanceof UnusableSnapshot || lacksFile(baseline)) this.#refuse(baseline, error as Error);
      throw error;
    } finally {
      this.#checks.delete(baseline);
    }
  }

  #refuse(baseline: Baseline, error: Error): void {
    logRefused(this.#deps.log, baseline.dir, error);
    this.#refused.set(baseline.dir, JSON.stringify(baseline.manifest));
    this.#deps.onRefused(baseline);
  }

  /** Ends the thread that verifies; another verification starts it again. */
  async close(): Promise<void> {
    await Promise.allSettled(this.#checks.values());
    const thread = this.#thread;
    this.#thread = undefined;
    await thread?.close();
  }
}

/** Durations of this process's operations and requests, its refusals of credentials and its uploads, for Prometheus (docs/operate/metrics.md). */
import { Counter, collectDefaultMetrics, Histogram, Registry } from "prom-client";

const SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

/** Operations whose stages are timed; each also has the stage `total`. */
export type TimedOperation = "create" | "wake" | "pause" | "fork" | "restore" | "checkpoint" | "template";

export class Meter {
  readonly registry = new Registry();
  readonly #stages: Histogram<"operation" | "stage">;
  readonly #requests: Histogram<"method" | "route" | "status">;
  readonly #wrongCredentials: Counter<"status">;
  readonly #uploads: Counter<"outcome">;

  constructor() {
    const registers = [this.registry];
    collectDefaultMetrics({ register: this.registry });
    this.#stages = new Histogram({
      name: "vivarium_operation_stage_seconds",
      help: "Stages of operations on sessions that succeeded",
      labelNames: ["operation", "stage"],
      buckets: SECONDS,
      registers,
    });
    this.#requests = new Histogram({
      name: "vivarium_http_request_seconds",
      help: "Requests, from their head to the end of the answer or until their client left",
      labelNames: ["method", "route", "status"],
      buckets: SECONDS,
      registers,
    });
    this.#wrongCredentials = new Counter({
      name: "vivarium_wrong_credentials_total",
      help: "Requests with a wrong credential; status: 401, or 429 for those past their address's limit",
      labelNames: ["status"],
      registers,
    });
    this.#uploads = new Counter({
      name: "vivarium_archive_uploads_total",
      help: "Attempts to store a saved state that have ended; outcome: complete, or failed, which may be tried again",
      labelNames: ["outcome"],
      registers,
    });
    // A rate of a series needs its value from before the first refusal.
    for (const status of ["401", "429"]) this.#wrongCredentials.inc({ status }, 0);
    for (const outcome of ["complete", "failed"]) this.#uploads.inc({ outcome }, 0);
  }

  /** `stages`: the duration of each stage, in milliseconds. */
  recordDuration(operation: TimedOperation, stages: Record<string, number | undefined>): void {
    for (const [stage, ms] of Object.entries(stages))
      if (ms !== undefined) this.#stages.observe({ operation, stage }, ms / 1000);
  }

  /** `route` is the pattern, never the requested path. `status` is that of the answer, or `left`. */
  answered({ ms, ...labels }: { method: string; route: string; status: string; ms: number }): void {
    this.#requests.observe(labels, ms / 1000);
  }

  refusedCredential(status: "401" | "429"): void {
    this.#wrongCredentials.inc({ status });
  }

  uploadEnded(outcome: "complete" | "failed"): void {
    this.#uploads.inc({ outcome });
  }
}

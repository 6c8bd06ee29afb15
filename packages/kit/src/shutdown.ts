/** Ends a service in phases when it is asked to stop. */
import { sleep } from "./clock.ts";

const PHASE_LIMIT_MS = 10_000;

interface Phase {
  name: string;
  run: () => Promise<unknown>;
}

/** Work before the phases, if the service is asked to stop with `signal`. Aborted by a stop without it. */
interface Preparation {
  name: string;
  signal: NodeJS.Signals;
  limitMs: number;
  run: (stopped: AbortSignal) => Promise<unknown>;
}

/**
 * Runs the phases once on SIGTERM, SIGINT or when the supervisor is gone (end of standard input, where it is a pipe and
 * `watchStdin` is set), each with a time limit, then ends the process.
 */
export function shutdownOnSignal(
  phases: Phase[],
  options: {
    watchStdin?: boolean;
    preparation?: Preparation;
    onPhase?: (name: string, outcome: PhaseOutcome) => void;
  } = {},
): void {
  let started = false;
  const stopped = new AbortController();
  const shutdown = async () => {
    if (started) return;
    started = true;
    stopped.abort();
    for (const phase of phases) {
      const outcome = await runWithin(phase, PHASE_LIMIT_MS);
      options.onPhase?.(phase.name, outcome);
    }
    process.exit(0);
  };
  const prepare = async ({ name, limitMs, run }: Preparation) => {
    const outcome = await runWithin({ name, run: () => run(stopped.signal) }, limitMs);
    options.onPhase?.(name, outcome);
    await shutdown();
  };
  process.on("SIGTERM", () => void shutdown());
  process.on("SIGINT", () => void shutdown());
  const { preparation } = options;
  if (preparation) process.once(preparation.signal, () => void prepare(preparation));
  // A second one must not end the process at once, as it would without a listener.
  if (preparation) process.on(preparation.signal, () => {});
  if (options.watchStdin) {
    process.stdin.on("end", () => void shutdown());
    process.stdin.on("error", () => void shutdown());
    process.stdin.resume();
  }
}

type PhaseOutcome = "done" | "late" | "failed";

async function runWithin({ run }: Phase, limitMs: number): Promise<PhaseOutcome> {
  return await Promise.race([
    run().then(
      () => "done" as const,
      () => "failed" as const,
    ),
    sleep(limitMs).then(() => "late" as const),
  ]);
}

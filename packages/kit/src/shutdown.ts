/** Ends a service in phases when it is asked to stop. */
import { sleep } from "./clock.ts";

const PHASE_LIMIT_MS = 10_000;

/**
 * Runs the phases once on SIGTERM, SIGINT or when the supervisor is gone (end of standard input, where it is a pipe and
 * `watchStdin` is set), each with a time limit, then ends the process.
 */
export function shutdownOnSignal(
  phases: { name: string; run: () => Promise<unknown> }[],
  options: {
    watchStdin?: boolean;
    onPhase?: (name: string, outcome: "done" | "late" | "failed") => void;
  } = {},
): void {
  let started = false;
  const shutdown = async () => {
    if (started) return;
    started = true;
    for (const { name, run } of phases) {
      const outcome = await Promise.race([
        run().then(
          () => "done" as const,
          () => "failed" as const,
        ),
        sleep(PHASE_LIMIT_MS).then(() => "late" as const),
      ]);
      options.onPhase?.(name, outcome);
    }
    process.exit(0);
  };
  process.on("SIGTERM", () => void shutdown());
  process.on("SIGINT", () => void shutdown());
  if (options.watchStdin) {
    process.stdin.on("end", () => void shutdown());
    process.stdin.on("error", () => void shutdown());
    process.stdin.resume();
  }
}

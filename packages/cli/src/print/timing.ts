/** Renders how long each stage of an operation took. */
import type { Terminal } from "../terminal.ts";

/** Stages in the order in which they happen. */
const STAGES = "queue place freeze state memory disk publish capture start load handshake".split(" ");
/** Spans over several stages, printed last: how long the guest was stopped, and the total. */
const SPANS = ["stopped", "total"];

/** Milliseconds per stage. */
export type Timing = Readonly<Record<string, number | undefined>>;

/** Renders `queue 1 ms, load 40 ms, total 60 ms`; unknown stages come after the known ones. */
export function renderTiming(timing: Timing): string {
  const rank = (stage: string) => {
    if (SPANS.includes(stage)) return STAGES.length + 1 + SPANS.indexOf(stage);
    const place = STAGES.indexOf(stage);
    return place < 0 ? STAGES.length : place;
  };
  return Object.entries(timing)
    .filter((entry): entry is [string, number] => typeof entry[1] === "number")
    .sort(([a], [b]) => rank(a) - rank(b))
    .map(([stage, ms]) => `${stage} ${ms} ms`)
    .join(", ");
}

/** Prints the timings on standard error with --timing; with --json they are in the result. */
export function noteTiming(
  { terminal, options }: { terminal: Terminal; options: { timing?: boolean; json?: boolean } },
  { timing }: { timing?: Timing },
): void {
  if (!options.timing || options.json) return;
  const stages = timing && renderTiming(timing);
  terminal.note(stages ? `viv: ${stages}` : "viv: the service sent no stage timings for this");
}

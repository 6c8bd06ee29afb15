/** A log whose lines are kept as the service would write them, with everything that is taken out of them taken out. */
import { createLog, type Log } from "@vivarium/kit/log";

export interface KeptLog {
  log: Log;
  /** As they were written, one JSON object each. */
  lines: string[];
}

export function keptLog(): KeptLog {
  const lines: string[] = [];
  return { lines, log: createLog("control", "trace", { write: (line) => void lines.push(line) }) };
}

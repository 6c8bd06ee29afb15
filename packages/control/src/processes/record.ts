/** The public form of a process (docs/spec/processes.md). */
import type { ProcessInfo } from "@vivarium/contract/api";
import type { GuestProcess } from "@vivarium/contract/guest";

/** Latest instant that RFC 3339 can express. */
const LATEST_INSTANT = Date.parse("9999-12-31T23:59:59.999Z");

export function toProcessInfo(process: GuestProcess): ProcessInfo {
  const hasExited = process.state === "exited";
  return {
    name: process.name,
    ...(process.pid !== undefined && { pid: process.pid }),
    command: process.argv,
    state: process.state,
    keep_alive: process.keep_alive,
    started_at: instant(process.started_at_ms),
    ...(hasExited && process.exit_code !== undefined && { exit_code: process.exit_code }),
    ...(hasExited && process.ended_at_ms !== undefined && { ended_at: instant(process.ended_at_ms) }),
  };
}

/** Cuts at the latest instant, because the machine's owner may have set its clock to anything. */
function instant(ms: number): string {
  return new Date(Math.min(ms, LATEST_INSTANT)).toISOString();
}

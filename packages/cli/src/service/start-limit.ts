/**
 * How long a start may take once its database runs. A process that keeps dying ends the wait earlier, so what the limit
 * bounds is a slow host.
 */
export const START_LIMIT_MS = 300_000;
/** For who waits for a supervisor, so that the supervisor's own reason comes first. */
export const WAIT_FOR_START_MS = START_LIMIT_MS + 60_000;

/**
 * How the supervisor asks control to pause every live session and end: the host goes down, and machines with it. A
 * plain stop, after which machines run on, is SIGTERM. Imports nothing.
 */
export const PAUSE_ALL_SIGNAL = "SIGUSR2";

/**
 * The longest that control takes for it. A host that is full of the largest machines has some 100 GiB to write; one
 * whose sessions have changed little is done in seconds.
 */
export const PAUSE_ALL_LIMIT_MS = 20 * 60_000;

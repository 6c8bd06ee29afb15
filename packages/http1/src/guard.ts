import type { Log } from "@vivarium/kit/log";

/** Wraps handlers of one connection's events: an exception in a handler ends that connection and nothing else. */
export type Guard = <Args extends unknown[]>(handler: (...args: Args) => void) => (...args: Args) => void;

/**
 * Logs an exception of the handler, which would otherwise end the process and all other connections, and then tries
 * `ends` in order until one does not throw. Not for a handler that continues after an `await`.
 */
export function guarded<Args extends unknown[]>(
  log: Pick<Log, "error">,
  handler: (...args: Args) => void,
  ...ends: ((...args: Args) => void)[]
): (...args: Args) => void {
  return (...args) => {
    try {
      handler(...args);
    } catch (error) {
      log.error({ err: error }, "a connection is ended, because what came on it broke its handler");
      ends.some((end) => succeeds(() => end(...args)));
    }
  };
}

function succeeds(end: () => void): boolean {
  try {
    end();
    return true;
  } catch {
    return false;
  }
}

import type { Log } from "@vivarium/kit/log";

/** Makes handlers of one connection's events such that none of them can end more than that connection. */
export type Heed = <Args extends unknown[]>(handler: (...args: Args) => void) => (...args: Args) => void;

/**
 * A handler of events of one connection, in which nothing that was sent to us can end more than that connection: an
 * exception in it would end the process, and with it what it carries for everybody. It is told in the log; then the
 * ends are tried in turn until one of them works. Not for a handler that goes on after an `await`.
 */
export function contained<Args extends unknown[]>(
  log: Pick<Log, "error">,
  handler: (...args: Args) => void,
  ...ends: ((...args: Args) => void)[]
): (...args: Args) => void {
  return (...args) => {
    try {
      handler(...args);
    } catch (error) {
      log.error({ err: error }, "a connection is ended, because what came on it broke its handler");
      ends.some((end) => isDone(() => end(...args)));
    }
  };
}

function isDone(end: () => void): boolean {
  try {
    end();
    return true;
  } catch {
    return false;
  }
}

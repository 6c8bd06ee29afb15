/** Exit codes of `viv`, also printed by `viv --help`. */
export const EXIT = {
  ok: 0,
  /** The service refused, could not be reached, or a check failed. */
  failed: 1,
  /** grep: nothing matched. */
  noMatch: 1,
  /** Wrong options or arguments. */
  usage: 2,
  /** grep: the search failed, as opposed to finding nothing. */
  searchFailed: 2,
  /** Another supervisor already serves this data directory. */
  alreadyRunning: 75,
  /** run, exec: the program was stopped by its timeout. */
  timeout: 124,
  /** run, exec, shell, ssh: viv or the service failed, not the program. */
  notRun: 125,
  /** Interrupted with Ctrl-C. */
  interrupted: 130,
  /** The reader of the output has gone, as in `| head`. */
  brokenPipe: 141,
  /** Ended with SIGTERM. */
  terminated: 143,
} as const;

export const EXIT_CODES_HELP = `Exit codes:
  0    success
  1    the service refused or could not be reached, or a check failed
  2    wrong options or arguments
  75   up: another "viv up" serves this data directory already
  grep exits as grep(1): 1 when nothing matches, 2 when it fails
  run, exec, shell and ssh exit with the program's own code, or with
  124  the program was stopped by its timeout (run, exec)
  125  viv or the service failed, so that the program did not run to its end
  130  interrupted with Ctrl-C
  141  the reader of the output has gone
  143  ended with SIGTERM`;

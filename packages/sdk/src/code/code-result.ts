/** The result of a run of code, in the terms of other code interpreters. */

/**
 * One format of one value. `value` numbers the shown values of a run from 0: a table comes as several results with the
 * same number. `main` marks the value of the expression at the end of the code.
 */
export type CodeResult = { value: number; main: boolean } & (
  | {
      /** `repr` of the value, and HTML where it has some (tables, for example). */
      type: "text/plain" | "text/html";
      data: string;
    }
  | {
      /** A plot or a picture, in base64. */
      type: "image/png";
      data: string;
    }
  | {
      /** Lists and dicts as JSON; a table as `{columns, index, data}`. */
      type: "application/json";
      data: unknown;
    }
);

/** An exception that the code did not catch; `sys.exit` is a SystemExit, a timeout a KeyboardInterrupt. */
export interface CodeError {
  name: string;
  value: string;
  traceback: string;
}

export interface CodeExecution {
  results: CodeResult[];
  /** The first 4 MiB of standard output, as text; `onStdout` gets all of it. */
  stdout: string;
  stderr: string;
  error?: CodeError;
  /** Number of the run in its context, from 1; restarts at 1 with a new process. */
  execution_count: number;
  /** The code was interrupted by its timeout. */
  timed_out: boolean;
  duration_ms: number;
  /** Part of `stdout`, `stderr` or `results` was left out. */
  truncated?: true;
}

export type CodeResultType = CodeResult["type"];

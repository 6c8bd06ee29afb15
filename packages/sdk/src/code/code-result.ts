/** The types of the result of a run of code, named as in other code interpreters. */

/**
 * One format of one shown value. `value` numbers the values of a run from 0: the formats of a table, for example, have
 * the same number. `main` marks the value of the expression at the end of the code.
 */
export type CodeResult = { value: number; main: boolean } & (
  | {
      /** `repr` of the value, or its HTML if it has any (tables, for example). */
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

/** An exception that the code did not catch. `sys.exit` is a SystemExit, a timeout a KeyboardInterrupt. */
export interface CodeError {
  name: string;
  value: string;
  traceback: string;
}

export interface CodeExecution {
  results: CodeResult[];
  /** The first 4 Mi characters of standard output; `onStdout` gets all of it. The same holds for `stderr`. */
  stdout: string;
  stderr: string;
  error?: CodeError;
  /** Number of the run in its context, from 1; restarts at 1 with a new process. */
  execution_count: number;
  /** Whether the code was interrupted by a timeout. */
  timed_out: boolean;
  duration_ms: number;
  /** Set when part of `stdout`, `stderr` or `results` was left out. */
  truncated?: true;
}

export type CodeResultType = CodeResult["type"];

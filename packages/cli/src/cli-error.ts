import { EXIT } from "./exit-codes.ts";

/** An error of `viv` itself: a message, a hint what to do, and an exit code if not the verb's default. */
export class CliError extends Error {
  override readonly name = "CliError";
  readonly hint: string | undefined;
  readonly exitCode: number | undefined;

  constructor(message: string, facts: { hint?: string; exitCode?: number; cause?: unknown } = {}) {
    super(message, { cause: facts.cause });
    this.hint = facts.hint;
    this.exitCode = facts.exitCode;
  }
}

/** An error in the options or arguments of a command line. */
export class UsageError extends CliError {
  constructor(message: string, hint?: string, cause?: unknown) {
    super(message, { hint, exitCode: EXIT.usage, cause });
  }
}

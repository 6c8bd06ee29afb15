import { EXIT } from "./exit-codes.ts";

/** A failure of the command line itself: what was wrong, and a hint with the way out. */
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

/** Wrong options or arguments. */
export class UsageError extends CliError {
  constructor(message: string, hint?: string, cause?: unknown) {
    super(message, { hint, exitCode: EXIT.usage, cause });
  }
}

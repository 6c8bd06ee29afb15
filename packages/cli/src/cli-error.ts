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

/** Why a build of a template failed: a word of its record, and a sentence for its log. */

export type BuildErrorCode = "image_invalid" | "image_too_large" | "build_timeout" | "internal";

export class BuildError extends Error {
  readonly code: BuildErrorCode;
  constructor(code: BuildErrorCode, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.code = code;
  }
}

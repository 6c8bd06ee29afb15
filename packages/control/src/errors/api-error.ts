import type { ErrorCode } from "@vivarium/contract/api";

/** The one error a caller gets to see. Its code decides the status; render-error.ts writes it. */
export class ApiError extends Error {
  readonly code: ErrorCode;
  /** Overrides the Retry-After of the code's row; null: no header. */
  readonly retryAfterS: number | null | undefined;

  constructor(
    code: ErrorCode,
    message: string,
    options: { cause?: unknown; retryAfterS?: number | null } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = "ApiError";
    this.code = code;
    this.retryAfterS = options.retryAfterS;
  }
}

/** One sentence for foreign, destroyed and never made: a caller cannot tell them apart. */
export class SessionNotFound extends ApiError {
  constructor() {
    super(
      "not_found",
      "session not found: no session of your organisation has this id (it may have been destroyed)",
    );
  }
}

export function sessionNotFound(): ApiError {
  return new SessionNotFound();
}

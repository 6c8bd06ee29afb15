import type { ErrorCode } from "@vivarium/contract/api";

/** The only error that callers see. Its code determines the HTTP status; http/render-error.ts writes the answer. */
export class ApiError extends Error {
  readonly code: ErrorCode;
  /** Overrides the Retry-After of the error's code; null: no header. */
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

/** Has one message for foreign, destroyed and unknown ids, so that a caller cannot distinguish them. */
export class SessionNotFound extends ApiError {
  constructor() {
    super(
      "not_found",
      "session not found: no session of your organisation has this id (it may have been destroyed)",
    );
  }
}

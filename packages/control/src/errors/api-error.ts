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

/** The credential was one of the service, and has ended: the audit log of its organisation names it. */
export class EndedCredential extends ApiError {
  readonly credential: { kind: "api_key" | "scoped_token"; id: string; orgId: string };

  constructor(message: string, credential: EndedCredential["credential"]) {
    super("unauthenticated", message);
    this.credential = credential;
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

/** The closed set of error codes (docs/spec/errors.md), with the status of each. This table imports nothing. */
export interface ErrorRow {
  readonly status: number;
  readonly retryable: boolean;
  /** Seconds for the Retry-After header; absent: the header is never sent. */
  readonly retryAfterS?: number;
  readonly meaning: string;
}

export const ERRORS = {
  validation: { status: 400, retryable: false, meaning: "malformed or invalid request" },
  payload_too_large: { status: 400, retryable: false, meaning: "content exceeds a transport limit" },
  unauthenticated: { status: 401, retryable: false, meaning: "missing, invalid or expired credential" },
  payment_required: { status: 402, retryable: false, meaning: "balance exhausted or spend cap reached" },
  forbidden: { status: 403, retryable: false, meaning: "valid credential, not allowed" },
  not_found: { status: 404, retryable: false, meaning: "missing, or missing for this caller" },
  method_not_allowed: { status: 405, retryable: false, meaning: "wrong method for the path" },
  conflict: { status: 409, retryable: false, meaning: "well-formed request that the current state refuses" },
  session_not_live: {
    status: 409,
    retryable: true,
    retryAfterS: 1,
    meaning: "session is not ready, or leaving its state",
  },
  org_has_other_members: {
    status: 409,
    retryable: false,
    meaning: "account closure refused while other members exist",
  },
  no_restore_point: { status: 409, retryable: false, meaning: "recover refused: no completed cold snapshot" },
  idempotency_key_in_progress: {
    status: 409,
    retryable: true,
    retryAfterS: 1,
    meaning: "same key still being processed",
  },
  egress_capped: {
    status: 409,
    retryable: false,
    meaning: "the organisation has sent all its bytes of the day",
  },
  session_ended: { status: 410, retryable: false, meaning: "session ended past recall" },
  session_node_lost: { status: 410, retryable: false, meaning: "home node declared permanently dead" },
  rate_limited: {
    status: 429,
    retryable: true,
    retryAfterS: 1,
    meaning: "rate or concurrency limit exceeded",
  },
  account_concurrency_exceeded: {
    status: 429,
    retryable: true,
    retryAfterS: 5,
    meaning: "account at its live-session ceiling",
  },
  key_concurrency_exceeded: {
    status: 429,
    retryable: true,
    retryAfterS: 5,
    meaning: "API key at its live-session ceiling",
  },
  internal: { status: 500, retryable: false, meaning: "unexpected failure" },
  bad_gateway: {
    status: 502,
    retryable: true,
    retryAfterS: 2,
    meaning: "node answered with garbage or broke the connection",
  },
  session_unavailable: {
    status: 503,
    retryable: true,
    retryAfterS: 2,
    meaning: "machine runs but its agent does not answer",
  },
  session_node_unavailable: {
    status: 503,
    retryable: true,
    retryAfterS: 5,
    meaning: "home node unreachable, not yet declared lost",
  },
  template_version_unavailable: {
    status: 503,
    retryable: true,
    retryAfterS: 5,
    meaning: "pinned template version cannot be materialised",
  },
  archive_unavailable: {
    status: 503,
    retryable: false,
    meaning: "durable pause required, no working cold tier",
  },
  size_unavailable: { status: 503, retryable: false, meaning: "requested size fits on no node" },
  node_disk_pressure: {
    status: 503,
    retryable: true,
    retryAfterS: 30,
    meaning: "node disk gate refused the operation",
  },
  unavailable: {
    status: 503,
    retryable: true,
    retryAfterS: 5,
    meaning: "dependency temporarily unreachable",
  },
  error: {
    status: 500,
    retryable: false,
    meaning: "fallback when no specific code applies; never emitted knowingly",
  },
} as const satisfies Record<string, ErrorRow>;

export type ErrorCode = keyof typeof ERRORS;

/** The table's row for a code; unknown codes are a generic failure of their HTTP class. */
export function errorRow(code: ErrorCode): ErrorRow {
  return ERRORS[code];
}

export function isErrorCode(code: string): code is ErrorCode {
  return Object.hasOwn(ERRORS, code);
}

/** Older equivalents that some servers still send; ours never emits them. */
export const ERROR_ALIASES: Readonly<Record<string, ErrorCode>> = {
  bad_request: "validation",
  unauthorized: "unauthenticated",
  concurrency_limit_exceeded: "rate_limited",
  rate_limit_exceeded: "rate_limited",
  service_unavailable: "unavailable",
  internal_error: "internal",
};

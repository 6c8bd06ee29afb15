/** The closed set of error codes (docs/spec/errors.md), with the status of each. This table imports nothing. */
export interface ErrorRow {
  readonly status: number;
  readonly retryable: boolean;
  /** Seconds for the Retry-After header; absent: the header is never sent. */
  readonly retryAfterS?: number;
  readonly meaning: string;
}

/** Row of an error that an immediate repetition is not expected to cure. */
const final = (status: number, meaning: string) => ({ status, retryable: false, meaning });
/** Row of an error whose request is worth repeating after `retryAfterS` seconds. */
const again = (status: number, retryAfterS: number, meaning: string) => ({
  status,
  retryable: true,
  retryAfterS,
  meaning,
});

export const ERRORS = {
  validation: final(400, "malformed or invalid request"),
  payload_too_large: final(400, "content exceeds a transport limit"),
  unauthenticated: final(401, "missing, invalid or expired credential"),
  payment_required: final(402, "balance exhausted or spend cap reached"),
  forbidden: final(403, "valid credential, not allowed"),
  not_found: final(404, "missing, or missing for this caller"),
  method_not_allowed: final(405, "wrong method for the path"),
  conflict: final(409, "well-formed request that the current state refuses"),
  session_not_live: again(409, 1, "session is not ready, or leaving its state"),
  org_has_other_members: final(409, "account closure refused while other members exist"),
  no_restore_point: final(409, "recover refused: no completed cold snapshot"),
  idempotency_key_in_progress: again(409, 1, "same key still being processed"),
  egress_capped: final(409, "the organisation has sent all its bytes of the day"),
  session_ended: final(410, "session ended past recall"),
  session_node_lost: final(410, "home node declared permanently dead"),
  rate_limited: again(429, 1, "rate or concurrency limit exceeded"),
  account_concurrency_exceeded: again(429, 5, "account at its live-session ceiling"),
  key_concurrency_exceeded: again(429, 5, "API key at its live-session ceiling"),
  internal: final(500, "unexpected failure"),
  bad_gateway: again(502, 2, "node answered with garbage or broke the connection"),
  session_unavailable: again(503, 2, "machine runs but its agent does not answer"),
  session_node_unavailable: again(503, 5, "home node unreachable, not yet declared lost"),
  template_version_unavailable: again(503, 5, "pinned template version cannot be materialised"),
  archive_unavailable: final(503, "durable pause required, no working cold tier"),
  size_unavailable: final(503, "requested size fits on no node"),
  node_disk_pressure: again(503, 30, "node disk gate refused the operation"),
  unavailable: again(503, 5, "dependency temporarily unreachable"),
  error: final(500, "fallback when no specific code applies; never emitted knowingly"),
} satisfies Record<string, ErrorRow>;

export type ErrorCode = keyof typeof ERRORS;

/** The table's row for a code. */
export function errorRow(code: ErrorCode): ErrorRow {
  return ERRORS[code];
}

export function isErrorCode(code: string): code is ErrorCode {
  return Object.hasOwn(ERRORS, code);
}

/** Older codes that some servers still send, with the codes that they mean. This server never sends them. */
export const ERROR_ALIASES: Readonly<Record<string, ErrorCode>> = {
  bad_request: "validation",
  unauthorized: "unauthenticated",
  concurrency_limit_exceeded: "rate_limited",
  rate_limit_exceeded: "rate_limited",
  service_unavailable: "unavailable",
  internal_error: "internal",
};

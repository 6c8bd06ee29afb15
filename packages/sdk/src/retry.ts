import type { VivariumError } from "./errors.ts";

/** Longer pauses than this are the caller's decision, not ours. */
const LONGEST_WAIT_S = 60;
const FIRST_BACKOFF_MS = 200;
const PROXY_STATUSES = [502, 503, 504];

/**
 * Milliseconds to wait before sending the same request again, or undefined when it must not be sent again.
 *
 * A retryable code with Retry-After promises that nothing has started, so every request may be repeated. Without an
 * answer, or with a proxy's own 5xx and any Retry-After, the request may have been carried out: only repeatable
 * requests are sent again.
 */
export function retryDelayMs(
  error: VivariumError,
  request: { repeatable: boolean },
  attempt: number,
): number | undefined {
  if (error.retryable && error.retryAfterS !== undefined && (request.repeatable || !isOfProxy(error))) {
    return error.retryAfterS <= LONGEST_WAIT_S ? error.retryAfterS * 1000 : undefined;
  }
  const isUnanswered = error.code === "connection_refused" || wasAnswerLost(error);
  return request.repeatable && isUnanswered ? FIRST_BACKOFF_MS * 2 ** attempt : undefined;
}

/** The request may have been carried out, but no answer came. */
export function wasAnswerLost(error: VivariumError): boolean {
  return error.code === "connection_failed" || (isOfProxy(error) && PROXY_STATUSES.includes(error.status));
}

/** A fault that the service has not reported itself. */
function isOfProxy({ code, status }: VivariumError): boolean {
  return code === "error" && status >= 500;
}

/** Decides whether and when a failed request is sent again. */
import type { VivariumError } from "./errors.ts";

/** The longest Retry-After, in seconds, that is waited for. A longer one is left to the caller. */
const LONGEST_WAIT_S = 60;
const FIRST_BACKOFF_MS = 200;
const PROXY_STATUSES = [502, 503, 504];

/**
 * Milliseconds to wait before sending the same request again; undefined when it must not be sent again.
 *
 * A retryable code of the service with Retry-After promises that nothing has started, so any request may be repeated.
 * Without an answer, or with a proxy's 5xx, the request may have been carried out: it must be repeatable.
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

/** Whether the request may have been carried out although its answer did not arrive. */
export function wasAnswerLost(error: VivariumError): boolean {
  return error.code === "connection_failed" || (isOfProxy(error) && PROXY_STATUSES.includes(error.status));
}

/** Whether a 5xx comes from a proxy: it lacks the service's error code. */
function isOfProxy({ code, status }: VivariumError): boolean {
  return code === "error" && status >= 500;
}

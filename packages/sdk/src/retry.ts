import type { VivariumError } from "./errors.ts";

/** Longer pauses than this are the caller's decision, not ours. */
const LONGEST_WAIT_S = 60;
const FIRST_BACKOFF_MS = 200;
const PROXY_STATUSES = [502, 503, 504];

/**
 * Milliseconds to wait before sending the same request again, or undefined when it must not be sent again.
 *
 * A retryable code with Retry-After is a promise that nothing has started, so it holds for every request. Without an
 * answer, or with a proxy's own 5xx, whatever that asks for, the request may have been carried out: only repeatable
 * requests go again.
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

/** The request may have been carried out, and nobody here was told. */
export function wasAnswerLost(error: VivariumError): boolean {
  return error.code === "connection_failed" || (isOfProxy(error) && PROXY_STATUSES.includes(error.status));
}

/** A fault that the service has not told itself. */
function isOfProxy({ code, status }: VivariumError): boolean {
  return code === "error" && status >= 500;
}

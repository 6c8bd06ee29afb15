/** The errors of statuses that mean the same from every server: too many requests, and failures of the server. */
import type { Answer } from "./http-client.ts";
import { RegistryError } from "./registry-error.ts";

const MAX_RETRY_AFTER_MS = 24 * 3_600_000;

/** `who` names the server in the message. */
export function failureOfStatus(answer: Answer, who: string): RegistryError {
  const { status } = answer;
  if (status === 429) {
    const retryAfterMs = readRetryAfter(answer.valuesOf("retry-after")[0]);
    const wait = retryAfterMs === undefined ? "later" : `in ${Math.ceil(retryAfterMs / 1000)} s`;
    return new RegistryError("rate_limited", `${who} has had too many requests; try again ${wait}`, {
      isTransient: true,
      retryAfterMs,
    });
  }
  return new RegistryError("registry_failed", `${who} answers with status ${status}`, {
    isTransient: status >= 500,
  });
}

/** Seconds, or a date. Undefined for anything else. */
export function readRetryAfter(value = "", now = Date.now()): number | undefined {
  const isDate = /^[A-Z][a-z]{2}, /.test(value);
  if (!isDate && !/^\d{1,9}$/.test(value)) return undefined;
  const ms = isDate ? Date.parse(value) - now : Number(value) * 1000;
  return Number.isNaN(ms) ? undefined : Math.min(Math.max(ms, 0), MAX_RETRY_AFTER_MS);
}

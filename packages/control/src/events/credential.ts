/** Ends a stream when its API key is revoked: a stream lasts longer than the check of its key. */
import { ApiError } from "../errors/api-error.ts";

/**
 * How often the key is checked. Together with the authenticator's cache this stays below the five seconds in which a
 * revoked key must stop working.
 */
const CHECK_MS = 2_000;

export function watchCredential(authenticate: () => Promise<unknown>): {
  signal: AbortSignal;
  stop: () => void;
} {
  const ended = new AbortController();
  const check = () =>
    authenticate().catch((error: unknown) => {
      // If the database is down, it is unknown whether the key is good.
      if (error instanceof ApiError && error.code === "unauthenticated") ended.abort();
    });
  const timer = setInterval(() => void check(), CHECK_MS);
  return { signal: ended.signal, stop: () => clearInterval(timer) };
}

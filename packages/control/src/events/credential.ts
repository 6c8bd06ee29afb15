/** Ends a stream when its API key is revoked: a stream lasts longer than the check of its key. */
import { ApiError } from "../errors/api-error.ts";

/**
 * A revoked key must stop working within five seconds. This time and the authenticator's cache stay below that
 * together.
 */
const LOOK_MS = 2_000;

export function watchCredential(authenticate: () => Promise<unknown>): {
  signal: AbortSignal;
  stop: () => void;
} {
  const ended = new AbortController();
  const look = () =>
    authenticate().catch((error: unknown) => {
      // If the database is down, it is unknown whether the key is good.
      if (error instanceof ApiError && error.code === "unauthenticated") ended.abort();
    });
  const timer = setInterval(() => void look(), LOOK_MS);
  return { signal: ended.signal, stop: () => clearInterval(timer) };
}

/** A stream lasts longer than the look at its key: it ends when the key does. */
import { ApiError } from "../errors/api-error.ts";

/** Together with what the authenticator remembers, within the five seconds in which a revoked key stops working. */
const LOOK_MS = 2_000;

export function untilCredentialEnds(authenticate: () => Promise<unknown>): {
  signal: AbortSignal;
  stop: () => void;
} {
  const ended = new AbortController();
  const look = () =>
    authenticate().catch((error: unknown) => {
      // Whether the key is good is unknown while the store is away.
      if (error instanceof ApiError && error.code === "unauthenticated") ended.abort();
    });
  const timer = setInterval(() => void look(), LOOK_MS);
  return { signal: ended.signal, stop: () => clearInterval(timer) };
}

import { VivariumError } from "@vivarium/sdk";

/** No answer, a rate limit, or a server's fault: the same request may succeed later. */
export function isTemporaryFailure(error: unknown): error is VivariumError {
  return (
    error instanceof VivariumError && (error.status === 0 || error.status === 429 || error.status >= 500)
  );
}

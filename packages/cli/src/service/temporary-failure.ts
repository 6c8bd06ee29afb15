import { VivariumError } from "@vivarium/sdk";

/** Whether the same request may succeed later: no answer, a rate limit, or a server error. */
export function isTemporaryFailure(error: unknown): error is VivariumError {
  return (
    error instanceof VivariumError && (error.status === 0 || error.status === 429 || error.status >= 500)
  );
}

/** The gate that every start of a machine passes: creates, wakes, restores and forks. Closed while the host shuts down. */
import { ApiError } from "../errors/api-error.ts";

/** A shutdown with the start after it takes longer than the usual wait for something that is away. */
const RETRY_AFTER_S = 30;

export class StartGate {
  #isClosed = false;

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Closes the gate for the rest of this process's life. */
  close(): void {
    this.#isClosed = true;
  }

  requireOpen(): void {
    if (!this.#isClosed) return;
    throw new ApiError(
      "unavailable",
      "the host is shutting down: live sessions are being paused, and nothing is started; try again when it is back",
      { retryAfterS: RETRY_AFTER_S },
    );
  }
}

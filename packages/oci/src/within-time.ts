/** Bounds work in time by a signal. */
import { RegistryError } from "./registry-error.ts";

/** The work rejects soon after its signal aborts. Rejects then with the reason of the caller's signal, or says that time is up. */
export async function withinTime<T>(
  ms: number,
  callers: AbortSignal | undefined,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const deadline = AbortSignal.timeout(ms);
  const signal = callers ? AbortSignal.any([callers, deadline]) : deadline;
  try {
    return await work(signal);
  } catch (error) {
    callers?.throwIfAborted();
    if (!deadline.aborted) throw error;
    throw new RegistryError("timed_out", `the registry took longer than ${ms / 1000} s`, {
      isTransient: true,
      cause: error,
    });
  }
}

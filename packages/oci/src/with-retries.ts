/** Sends requests again that failed for a reason that may pass. */
import { sleep } from "@vivarium/kit/clock";
import type { PullLimits } from "./limits.ts";
import { RegistryError } from "./registry-error.ts";

/** A registry that asks for patience (429) is not asked again: how long a pull waits is the caller's to say. */
export function isWorthRetrying(error: unknown): error is RegistryError {
  return error instanceof RegistryError && error.isTransient && error.code !== "rate_limited";
}

export async function withRetries<T>(
  { retries, retryMs }: Pick<PullLimits, "retries" | "retryMs">,
  signal: AbortSignal,
  work: () => Promise<T>,
): Promise<T> {
  for (let failures = 0; ; failures++) {
    try {
      return await work();
    } catch (error) {
      if (failures >= retries || !isWorthRetrying(error)) throw error;
      await sleep(waitBefore(failures, retryMs), signal);
      signal.throwIfAborted();
    }
  }
}

/** Doubles with each failure, up to half as long again at random, so that many pulls do not return at one instant. */
export function waitBefore(failures: number, retryMs: number): number {
  return retryMs * 2 ** failures * (1 + Math.random() / 2);
}

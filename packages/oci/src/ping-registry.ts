/** Finds out whether a host is a registry, and whether it takes a credential. */
import { Registry, type RegistryOptions } from "./registry.ts";
import { withRetries } from "./with-retries.ts";
import { withinTime } from "./within-time.ts";

export interface PingInput extends RegistryOptions {
  /** As `normalRegistry` gives it. */
  registry: string;
  signal?: AbortSignal;
}

const PING_MS = 60_000;

/** Rejects with RegistryError, or with the reason of the signal. */
export async function pingRegistry(input: PingInput): Promise<void> {
  const registry = new Registry(input.registry, undefined, input);
  try {
    await withinTime(PING_MS, input.signal, async (signal) => {
      await withRetries(registry.limits, signal, () => registry.ping(signal));
    });
  } finally {
    await registry.close();
  }
}

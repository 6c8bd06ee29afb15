import { sleep } from "@vivarium/kit/clock";
import type { Client, Health } from "@vivarium/sdk";

const POLL_MS = 50;

/** Polls until the service reports that it is healthy; undefined at the time limit, on abort, or when hopeless. */
export async function waitForHealth(
  client: Client,
  options: { limitMs: number; signal?: AbortSignal; isHopeless?: () => boolean },
): Promise<Health | undefined> {
  const deadline = performance.now() + options.limitMs;
  while (performance.now() < deadline && !options.signal?.aborted && !options.isHopeless?.()) {
    const health = await askHealth(client);
    if (health) return health;
    await sleep(POLL_MS, options.signal);
  }
  return undefined;
}

/** One health request; every failure is undefined. */
export async function askHealth(client: Client): Promise<Health | undefined> {
  return client.health({ signal: AbortSignal.timeout(2000) }).catch(() => undefined);
}

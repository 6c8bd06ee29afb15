import { sleep } from "@vivarium/kit/clock";
import type { Client, Health } from "@vivarium/sdk";

const POLL_MS = 50;

/** Asks until the service says that it can work; undefined when that does not come about. */
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

/** One question; anything but a proper answer is "not yet". */
export async function askHealth(client: Client): Promise<Health | undefined> {
  return client.health({ signal: AbortSignal.timeout(2000) }).catch(() => undefined);
}

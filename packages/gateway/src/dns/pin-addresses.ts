import type { Pin } from "@vivarium/contract/gateway";
import type { Log } from "@vivarium/kit/log";
import type { Place } from "../tables/current-tables.ts";
import type { NodeClient } from "../tables/node-client.ts";

/** How much longer than the answer the kernel lets the machine reach the addresses it was given. */
const GRACE_S = 60;

/**
 * Lets the machine reach these addresses on ports of `host:port` entries. False where that is not so, because its
 * policy is another by now or the node is away: then the guest must not be told the addresses.
 */
export async function pinAddresses(
  { node, log }: { node: NodeClient; log: Log },
  { machineId, generation }: Place,
  { host, ports, addresses, ttlS }: { host: string; ports: number[]; addresses: string[]; ttlS: number },
): Promise<boolean> {
  const pins = ports.map(
    (port): Pin => ({ machine_id: machineId, generation, host, port, addresses, ttl_s: ttlS + GRACE_S }),
  );
  try {
    const answers = await Promise.all(pins.map((pin) => node.post("/v1/pins", pin)));
    return answers.every(({ status }) => status === 204);
  } catch (error) {
    log.warn({ err: error, machine: machineId }, "addresses could not be opened for a machine");
    return false;
  }
}

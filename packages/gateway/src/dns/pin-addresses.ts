/** Asks the node to let a machine reach the resolved addresses of a `host:port` entry. */
import type { Pin } from "@vivarium/contract/gateway";
import type { Log } from "@vivarium/kit/log";
import type { MachineSlot } from "../tables/current-tables.ts";
import type { NodeClient } from "../tables/node-client.ts";

/** Seconds by which a pin outlives the answer's TTL. */
const GRACE_S = 60;
/** Seconds by which a known pin must outlive the TTL to be used again. Less than `GRACE_S`: one call per resolution. */
const LEAST_GRACE_S = 30;

type PinDeps = { node: NodeClient; log: Log };

/**
 * Lets the machine reach these addresses on these ports. Resolves to false when the node refuses (the policy has
 * changed, or too many pins are open) or cannot be reached: the guest must not get the addresses then.
 */
export async function pinAddresses(
  deps: PinDeps,
  slot: MachineSlot,
  { host, ports, addresses, ttlS }: { host: string; ports: number[]; addresses: string[]; ttlS: number },
): Promise<boolean> {
  if (ports.length === 0) return true;
  const { machineId, generation, pins } = slot;
  const now = performance.now();
  const known = addresses.map((address) => pins.find(host, address, now + (ttlS + LEAST_GRACE_S) * 1000));
  const lacking = addresses.filter((_, index) => known[index] === undefined);
  if (lacking.length > 0) {
    const wish = { machine_id: machineId, generation, host, ports, addresses: lacking };
    const isOpen = pin(deps, { ...wish, ttl_s: ttlS + GRACE_S });
    pins.add(host, lacking, { until: now + (ttlS + GRACE_S) * 1000, isOpen });
    known.push(isOpen);
  }
  return (await Promise.all(known)).every((isOpen) => isOpen !== false);
}

async function pin({ node, log }: PinDeps, wish: Pin): Promise<boolean> {
  try {
    return (await node.post("/v1/pins", wish)).status === 204;
  } catch (error) {
    log.warn({ err: error, machine: wish.machine_id }, "addresses could not be opened for a machine");
    return false;
  }
}

/**
 * Sends the node every few seconds the versions of all Connections that count, and then those that it lacks. Without this
 * lease its gateway stops injecting after 20 s: a revocation might not have arrived.
 */

import { type PushDeps, pushConnections } from "./push.ts";
import { listBoundWithMachine } from "./store.ts";

/** Concurrent calls to the node. */
const AT_ONCE = 8;

export function keepLease(deps: PushDeps): Promise<void> {
  const running = renewals.get(deps.nodes);
  if (running !== undefined) return running;
  const renewal = renew(deps).finally(() => renewals.delete(deps.nodes));
  renewals.set(deps.nodes, renewal);
  return renewal;
}

/**
 * One renewal at a time: the node takes a session from the gateway whose newest version it does not have by the second
 * one.
 */
const renewals = new WeakMap<PushDeps["nodes"], Promise<void>>();

async function renew(deps: PushDeps): Promise<void> {
  const wanted = await deps.nodes.leaseConnections({ sessions: await listBoundWithMachine(deps.db) });
  const failures: unknown[] = [];
  const next = wanted.values();
  const work = async () => {
    for (const id of next) await pushConnections(deps, id).catch((error: unknown) => failures.push(error));
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  if (failures.length > 0) throw failures[0];
}

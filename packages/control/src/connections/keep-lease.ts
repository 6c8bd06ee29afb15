/**
 * Sends the node every few seconds the versions of all Connections that count, and then those that it lacks. Without this
 * lease its gateway stops injecting after 20 s: a revocation might not have arrived.
 */

import { type PushDeps, pushConnections } from "./push.ts";
import { listBoundWithMachine } from "./store.ts";

/** Concurrent calls to the node. */
const AT_ONCE = 8;
/** A renewal ends by then, so that the next one is in time. What it did not send is wanted again by that one. */
const PUSHES_MS = 8_000;

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
  const over = AbortSignal.timeout(PUSHES_MS);
  const next = wanted.values();
  const work = async () => {
    for (const id of next) {
      if (over.aborted) return;
      await pushConnections(deps, id, over).catch((error: unknown) => failures.push(error));
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  if (failures.length > 0) throw failures[0];
}

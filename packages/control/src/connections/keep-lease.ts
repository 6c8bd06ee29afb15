/**
 * Sends the node every few seconds the versions of all Connections that count, and then those that it lacks. Without this
 * lease its gateway stops injecting after 20 s: a revocation might not have arrived.
 */
import { endsWithin } from "@vivarium/kit/clock";
import { type PushDeps, pushConnections } from "./push.ts";
import { listBoundWithMachine } from "./store.ts";

/** Concurrent calls to the node. */
const AT_ONCE = 8;
/** For one session. The node answers or refuses within 5 s. */
const PUSH_MS = 7_000;
/** No push begins after this, so that the next renewal comes before the lease of this one is over, and sends the rest. */
const BEGIN_MS = 10_000;
const NEVER = new AbortController().signal;

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
  const began = performance.now();
  const work = async () => {
    for (const id of next) {
      if (performance.now() - began > BEGIN_MS)
        return void failures.push(new Error("Connections are left for the next renewal"));
      await pushInTime(deps, id).catch((error: unknown) => failures.push(error));
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  if (failures.length > 0) throw failures[0];
}

async function pushInTime(deps: PushDeps, sessionId: string): Promise<void> {
  if (await endsWithin(PUSH_MS, pushConnections(deps, sessionId, NEVER))) return;
  throw new Error(`the Connections of session ${sessionId} did not arrive in time`);
}

/** Brings a session's Connections into force on its node. */
import { once } from "node:events";
import { sleep } from "@vivarium/kit/clock";
import type { SessionRow } from "../sessions/store.ts";
import { keepLease } from "./keep-lease.ts";
import { type PushDeps, pushConnections } from "./push.ts";

/** How long a session waits for the lease, which the node sends after the Connections of all other sessions. */
const LEASE_MS = 4_000;
const PAUSE_MS = 100;
const NEVER = new AbortController().signal;

/**
 * Resolves once the node, and its gateway where a machine runs, have the newest Connections of the session, and a lease for
 * them unless that takes long. Right after a start of the service there is none yet, and a guest's first request would be
 * answered 502.
 */
export async function putInForce(deps: PushDeps, sessionId: string, over = NEVER): Promise<void> {
  const waiting = AbortSignal.any([over, AbortSignal.timeout(LEASE_MS)]);
  for (;;) {
    const { isLeased } = await pushConnections(deps, sessionId, over);
    if (isLeased || waiting.aborted) return;
    // A failure is of another session, which the second renewal leaves out, or of a node that is away.
    const renewed = keepLease(deps).catch(() => {});
    await Promise.race([renewed.then(() => sleep(PAUSE_MS, waiting)), once(waiting, "abort")]);
  }
}

/** Before a machine starts, so that it is not live without its Connections. */
export async function putInForceBeforeStart(
  deps: PushDeps,
  session: SessionRow,
  over: AbortSignal,
): Promise<void> {
  if (session.ca_certificate !== null) await putInForce(deps, session.id, over);
}

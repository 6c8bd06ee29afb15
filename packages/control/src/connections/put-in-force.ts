/** Brings a session's Connections into force on its node. */
import { endsWithin } from "@vivarium/kit/clock";
import type { SessionRow } from "../sessions/store.ts";
import { keepLease } from "./keep-lease.ts";
import { type PushDeps, pushConnections } from "./push.ts";

/** How long a session waits for the lease, which comes after the Connections of all other sessions. */
const LEASE_MS = 5_000;
const NEVER = new AbortController().signal;

/**
 * Resolves once the node, and its gateway where a machine runs, have the newest Connections of the session, and a lease for
 * them unless that takes long. Right after a start of the service there is none yet, and a guest's first request would be
 * answered 502.
 */
export async function putInForce(deps: PushDeps, sessionId: string, over = NEVER): Promise<void> {
  const { isLeased } = await pushConnections(deps, sessionId, over);
  // A failure is of another session, or of a node that is away: the sweep tries it again.
  if (!isLeased)
    await endsWithin(
      LEASE_MS,
      keepLease(deps).catch(() => {}),
    );
}

/** Before a machine starts, so that it is not live without its Connections. */
export async function putInForceBeforeStart(
  deps: PushDeps,
  session: SessionRow,
  over: AbortSignal,
): Promise<void> {
  if (session.ca_certificate !== null) await putInForce(deps, session.id, over);
}

/** The room's periodic work. Every part may run in several processes at once and be cut off anywhere. */
import type { Log } from "@vivarium/kit/log";
import type { Activity } from "./activity.ts";
import { PROVISION_LEASE_MS } from "./admit.ts";
import { type DestroyDeps, destroySession } from "./destroy.ts";
import { deleteOldIdempotencyKeys } from "./idempotency-store.ts";
import { type ReconcileDeps, reconcileMachines } from "./reconcile.ts";
import { releaseMachine } from "./release-machine.ts";
import {
  claimOrphanedProvisions,
  deleteOldHistory,
  listDueForDestroy,
  listOldFailures,
  listUnreleased,
} from "./store.ts";

export type SweepDeps = DestroyDeps & ReconcileDeps & { activity: Activity };

/** Work of every tick. */
export const TICK_PARTS: Record<string, (deps: SweepDeps) => Promise<void>> = {
  "adopt provisioning": async (deps) => {
    for (const session of await claimOrphanedProvisions(deps.db, PROVISION_LEASE_MS))
      deps.provisioner.start(session);
  },
  "reconcile machines": reconcileMachines,
  "destroy due sessions": async (deps) => {
    for (const session of await listDueForDestroy(deps.db)) await destroySession(deps, session);
  },
  "release machines": async (deps) => {
    for (const session of await listUnreleased(deps.db)) await releaseMachine(deps, session);
  },
  "destroy old failures": async (deps) => {
    for (const session of await listOldFailures(deps.db)) {
      await destroySession(deps, session, { event: "failed_expired" });
    }
  },
};

/** Work of now and then. */
export const HOURLY_PARTS: Record<string, (deps: SweepDeps) => Promise<void>> = {
  "forget old history": (deps) => deleteOldHistory(deps.db),
  "forget old idempotency keys": (deps) => deleteOldIdempotencyKeys(deps.db),
};

/** One pass. A part that fails does not keep the others from running. */
export async function sweepSessions(
  deps: SweepDeps & { log: Log },
  parts: Record<string, (deps: SweepDeps) => Promise<void>>,
): Promise<void> {
  for (const [name, part] of Object.entries(parts)) {
    try {
      await part(deps);
    } catch (err) {
      deps.log.warn({ err, part: name }, "a part of the sweep failed; it runs again");
    }
  }
}

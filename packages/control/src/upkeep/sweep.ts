/** The room's periodic work. Every part may run in several processes at once and be cut off anywhere. */

import { deleteOldEntries } from "../audit/store.ts";
import { emitDenials } from "../egress/denials.ts";
import { deleteOldLines } from "../egress/log-store.ts";
import { reconcileNetworks } from "../egress/reconcile-networks.ts";
import { deleteOldEvents } from "../events/store.ts";
import { NodeError } from "../fleet/node-error.ts";
import { listDueForDestroy } from "../leases/lease.ts";
import { claimOrphanedProvisions, PROVISION_LEASE_MS } from "../leases/provision-claim.ts";
import { destroySession } from "../moves/destroy.ts";
import { releaseSession } from "../moves/release-session.ts";
import { takeOverOperations } from "../operations/take-over.ts";
import { listOldFailures, listUnreleased } from "../sessions/store.ts";
import { deleteOldIdempotencyKeys } from "../starts/idempotency-store.ts";
import { discard, isUnborn } from "../starts/start-together.ts";
import { deleteOldAttachments } from "../terminals/attachments-store.ts";
import type { UpkeepDeps } from "./deps.ts";
import { fireClocks } from "./fire-clocks.ts";
import { takeFirstLook } from "./first-look.ts";
import { keepOrgCaps } from "./keep-org-caps.ts";
import { deleteOldHistory } from "./store.ts";
import { TAKE_OVERS } from "./take-overs.ts";
import { endAfterUnheardCommands } from "./unheard-commands.ts";

/** Deadlines are looked at more often than the rest: how late one is noticed is told to a caller. */
export const CLOCK_PART = fireClocks;

type Parts = Record<string, (deps: UpkeepDeps) => Promise<void>>;

/** What is tried until it succeeds before anything else rests on rows: they may be those of a backup. */
export const FIRST_PART = takeFirstLook;

/** What rows and the node are brought in line by, each in its own way. */
export const IN_LINE_PARTS: Parts = {
  "reconcile machines": (deps) => deps.reconciler.reconcile(),
  "remove orphan snapshots": (deps) => deps.orphanSnapshots.remove(),
};

/** Work of every tick. */
export const TICK_PARTS: Parts = {
  "adopt provisioning": async (deps) => {
    const lapsedBefore = deps.storeWatch.lapsedBefore();
    if (!lapsedBefore) return;
    const claim = { leaseMs: PROVISION_LEASE_MS, lapsedBefore };
    for (const { session, ageMs } of await claimOrphanedProvisions(deps.db, claim))
      deps.provisioner.start(session, ageMs);
  },
  "take over operations": async (deps) => {
    const lapsedBefore = deps.storeWatch.lapsedBefore();
    if (lapsedBefore) await takeOverOperations(deps, TAKE_OVERS, lapsedBefore);
  },
  ...IN_LINE_PARTS,
  "end sessions after their only command": endAfterUnheardCommands,
  "destroy due sessions": async (deps) => {
    const lapsedBefore = deps.storeWatch.lapsedBefore();
    if (!lapsedBefore) return;
    const due = (await listDueForDestroy(deps.db, lapsedBefore)).filter(({ id }) => !deps.leasesKept.has(id));
    await Promise.all(
      due.map((session) => (isUnborn(session) ? discard(deps, [session]) : destroySession(deps, session))),
    );
  },
  "keep networks": reconcileNetworks,
  "keep caps of organisations": keepOrgCaps,
  "tell denials": emitDenials,
  "tell routes": (deps) => deps.previewPush.check(),
  "release machines": async (deps) => {
    await Promise.all((await listUnreleased(deps.db)).map((session) => releaseSession(deps, session)));
  },
  "destroy old failures": async (deps) => {
    for (const session of await listOldFailures(deps.db)) {
      await destroySession(deps, session, { event: "failed_expired" });
    }
  },
};

/** Work of now and then. */
export const HOURLY_PARTS: Parts = {
  "forget old audit entries": (deps) => deleteOldEntries(deps.db),
  "forget past clients": (deps) => deleteOldAttachments(deps.db),
  "forget old egress lines": (deps) => deleteOldLines(deps.db),
  "forget old events": (deps) => deleteOldEvents(deps.db),
  "forget old history": (deps) => deleteOldHistory(deps.db),
  "forget names of snapshots": (deps) => deps.orphanSnapshots.forgetNames(),
  "forget old idempotency keys": (deps) => deleteOldIdempotencyKeys(deps.db),
};

/** One pass of one part. A failure, which is told by false, is not the end of it: the next tick tries again. */
export async function runPart(
  deps: UpkeepDeps,
  name: string,
  part: (deps: UpkeepDeps) => Promise<void>,
): Promise<boolean> {
  try {
    await part(deps);
    return true;
  } catch (err) {
    // A node that is away is an expected state, told every tick: one line, no stack.
    const detail = err instanceof NodeError ? { reason: err.message } : { err };
    deps.log.warn({ ...detail, part: name }, "a part of the sweep failed; it runs again");
    return false;
  }
}

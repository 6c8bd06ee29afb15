/** The parts of the periodic work. Each may run in several processes at once, and may be interrupted anywhere. */

import { addMissing } from "../archives/add-missing.ts";
import { freeDisk } from "../archives/free.ts";
import { removeOrphanChunks } from "../archives/remove-objects.ts";
import { addUploads, deleteArchives, retryFailed } from "../archives/sweep.ts";
import { removeOrphanObjects } from "../artifacts/remove-objects.ts";
import { addCaptures, expireArtifacts, failOverdue } from "../artifacts/sweep.ts";
import { deleteOldEntries } from "../audit/retention.ts";
import { addBuilds, deleteOrphanBuilds } from "../builds/sweep.ts";
import { auditUses } from "../connections/audit-uses.ts";
import { emitExpired } from "../connections/emit-expired.ts";
import { keepLease } from "../connections/keep-lease.ts";
import { emitDenials } from "../egress/denials.ts";
import { deleteOldLines } from "../egress/log-store.ts";
import { reconcileNetworks } from "../egress/reconcile-networks.ts";
import { deleteOldEvents } from "../events/store.ts";
import { NodeError } from "../fleet/node-error.ts";
import { listDueForDestroy } from "../leases/lease.ts";
import { claimOrphanedProvisions } from "../leases/provision-claim.ts";
import { destroySession } from "../moves/destroy.ts";
import { releaseSession } from "../moves/release-session.ts";
import { deleteOldHistory, listOldFailures, listUnreleased } from "../sessions/store.ts";
import { deleteOldIdempotencyKeys } from "../starts/idempotency-store.ts";
import { discardSessions, isProvisional } from "../starts/start-together.ts";
import { deleteOldAttachments } from "../terminals/attachments-store.ts";
import { deleteOldTokens } from "../tokens/store.ts";
import { giveBackUnused } from "../volumes/attach.ts";
import { finishVolumes } from "../volumes/delete.ts";
import type { UpkeepDeps } from "./deps.ts";
import { endAfterDetachedCommands } from "./detached-commands.ts";
import { fireClocks } from "./fire-clocks.ts";
import { takeFirstLook } from "./first-look.ts";
import { keepOrgCaps } from "./keep-org-caps.ts";
import { takeOverOperations } from "./take-overs.ts";

/** The deadlines. Checked more often than the other parts run, because callers see how late a deadline is noticed. */
export const CLOCK_PART = fireClocks;

type Parts = Record<string, (deps: UpkeepDeps) => Promise<void>>;

/** Retried after the start until it succeeds, before deadlines and parts of a tick: rows may be from a backup. */
export const FIRST_PART = takeFirstLook;

/** Brings rows and node in line: once at start-up, then at every tick. */
export const RECONCILE_PARTS: Parts = {
  "reconcile machines": (deps) => deps.reconciler.reconcile(),
  "remove orphan snapshots": (deps) => deps.orphanSnapshots.removeOrCatchUp(),
};

export const TICK_PARTS: Parts = {
  "adopt provisioning": async (deps) => {
    const lapsedBefore = deps.storeWatch.lapsedBefore();
    if (!lapsedBefore) return;
    for (const { session, ageMs } of await claimOrphanedProvisions(deps.db, lapsedBefore))
      deps.provisioner.start(session, ageMs);
  },
  "take over operations": async (deps) => {
    const lapsedBefore = deps.storeWatch.lapsedBefore();
    if (lapsedBefore) await takeOverOperations(deps, lapsedBefore);
  },
  ...RECONCILE_PARTS,
  "end sessions after their only command": endAfterDetachedCommands,
  "destroy due sessions": async (deps) => {
    const lapsedBefore = deps.storeWatch.lapsedBefore();
    if (!lapsedBefore) return;
    const due = (await listDueForDestroy(deps.db, lapsedBefore)).filter(({ id }) => !deps.leasesKept.has(id));
    await Promise.all(
      due.map((session) =>
        isProvisional(session) ? discardSessions(deps, [session]) : destroySession(deps, session),
      ),
    );
  },
  "keep networks": reconcileNetworks,
  "keep caps of organisations": keepOrgCaps,
  "report denials": emitDenials,
  "lease Connections": keepLease,
  "report expired Connections": emitExpired,
  "write uses of Connections": auditUses,
  "push routes": (deps) => deps.previewPush.check(),
  "add captures": addCaptures,
  "fail overdue captures": failOverdue,
  "expire artifacts": expireArtifacts,
  "delete archives": deleteArchives,
  "retry failed archives": retryFailed,
  "add uploads": addUploads,
  "free disk": freeDisk,
  "add builds": addBuilds,
  "delete orphan builds": deleteOrphanBuilds,
  "release machines": async (deps) => {
    await Promise.all((await listUnreleased(deps.db)).map((session) => releaseSession(deps, session)));
  },
  "finish volumes": finishVolumes,
  "give back volumes": giveBackUnused,
  "destroy old failures": async (deps) => {
    for (const session of await listOldFailures(deps.db)) {
      await destroySession(deps, session, { event: "failed_expired" });
    }
  },
};

export const HOURLY_PARTS: Parts = {
  "remove orphan objects": (deps) => removeOrphanObjects(deps),
  "remove orphan chunks": (deps) => removeOrphanChunks(deps),
  "add missing archives": addMissing,
  "forget old audit entries": (deps) => deleteOldEntries(deps),
  "forget past clients": (deps) => deleteOldAttachments(deps.db),
  "forget old egress lines": (deps) => deleteOldLines(deps.db),
  "forget old events": (deps) => deleteOldEvents(deps.db),
  "forget old history": (deps) => deleteOldHistory(deps.db),
  "forget names of snapshots": (deps) => deps.orphanSnapshots.forgetNames(),
  "forget old tokens": (deps) => deleteOldTokens(deps.db),
  "forget old idempotency keys": (deps) => deleteOldIdempotencyKeys(deps.db),
};

/** Runs one part once. Returns false after a failure, which is logged: the next run tries again. */
export async function runPart(
  deps: UpkeepDeps,
  name: string,
  part: (deps: UpkeepDeps) => Promise<void>,
): Promise<boolean> {
  try {
    await part(deps);
    return true;
  } catch (err) {
    // A node that is away or refuses is expected, and may be logged at every tick: one line, no stack.
    const detail = err instanceof NodeError ? { reason: err.message } : { err };
    deps.log.warn({ ...detail, part: name }, "a part of the sweep failed; it runs again");
    return false;
  }
}

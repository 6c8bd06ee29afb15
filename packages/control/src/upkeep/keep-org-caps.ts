/** Corrects the marks of organisations over their daily egress cap, and pauses the live sessions of those over it. */

import { markOrg } from "../egress/org-cap.ts";
import { isOrgCapped, listLiveOverCap, listOrgsWithWrongMark } from "../egress/org-cap-store.ts";
import { claimAndPause } from "../moves/pause-machine.ts";
import type { SessionRow } from "../sessions/store.ts";
import type { UpkeepDeps } from "./deps.ts";

/** A pause that a guest cannot be frozen for stops its machine for a moment, so it is tried no more often than this. */
const RETRY_MS = 10_000;

/** Maximum number of background tasks of this process. Further sessions wait for the next tick. */
const MAX_IN_FLIGHT = 32;

export async function keepOrgCaps(deps: UpkeepDeps): Promise<void> {
  for (const orgId of await listOrgsWithWrongMark(deps.db, deps.egressCaps)) await markOrg(deps, orgId);
  const free = MAX_IN_FLIGHT - deps.operations.backgroundCount;
  if (free <= 0) return;
  const now = performance.now();
  for (const [id, triedAt] of deps.capPauses) if (now - triedAt >= RETRY_MS) deps.capPauses.delete(id);
  const except = [...deps.capPauses.keys()];
  for (const session of await listLiveOverCap(deps.db, { except, limit: free })) {
    deps.capPauses.set(session.id, now);
    deps.operations.runInBackground(pause(deps, session));
  }
}

/** Race: the cap may be raised, or the day end, after the decision. The cap is checked again with the claim. */
async function pause(deps: UpkeepDeps, session: SessionRow): Promise<void> {
  await claimAndPause(deps, session, { event: "pause" }, (tx) => isOrgCapped(tx, session.org_id));
}

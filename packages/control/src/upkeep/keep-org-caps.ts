/** Corrects the marks of organisations over their daily egress cap, and pauses the live sessions of those over it. */

import { markOrg } from "../egress/org-cap.ts";
import { isOrgCapped, listLiveOverCap, listOrgsWithWrongMark } from "../egress/org-cap-store.ts";
import { claimAndPause } from "../moves/pause-machine.ts";
import type { SessionRow } from "../sessions/store.ts";
import type { UpkeepDeps } from "./deps.ts";

/** Maximum number of background tasks of this process. Further sessions wait for the next tick. */
const MAX_IN_FLIGHT = 32;

export async function keepOrgCaps(deps: UpkeepDeps): Promise<void> {
  for (const orgId of await listOrgsWithWrongMark(deps.db, deps.egressCaps)) await markOrg(deps, orgId);
  const free = MAX_IN_FLIGHT - deps.operations.backgroundCount;
  if (free <= 0) return;
  for (const session of await listLiveOverCap(deps.db, free))
    deps.operations.runInBackground(pause(deps, session));
}

/** Race: the cap may be raised, or the day end, after the decision. The cap is checked again with the claim. */
async function pause(deps: UpkeepDeps, session: SessionRow): Promise<void> {
  await claimAndPause(deps, session, { event: "pause" }, (tx) => isOrgCapped(tx, session.org_id));
}

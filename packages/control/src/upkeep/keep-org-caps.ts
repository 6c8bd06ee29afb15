/** Every tick: organisations that sent their day's bytes are marked, and what of theirs is live is paused. */

import { markOrg } from "../egress/org-cap.ts";
import { isOrgCapped, listLiveOverCap, listMisjudged } from "../egress/org-cap-store.ts";
import { pauseLiveSession } from "../moves/pause-machine.ts";
import type { SessionRow } from "../sessions/store.ts";
import type { UpkeepDeps } from "./deps.ts";

/** Pauses under way at once; the others come with the next ticks. */
const AT_ONCE = 32;

export async function keepOrgCaps(deps: UpkeepDeps): Promise<void> {
  for (const orgId of await listMisjudged(deps.db, deps.egressCaps)) await markOrg(deps, orgId);
  const room = AT_ONCE - deps.operations.backgroundCount;
  if (room <= 0) return;
  for (const session of await listLiveOverCap(deps.db, room)) deps.operations.runInBackground(pause(deps, session));
}

/** Decided anew at the claim: the cap may have been raised, or the day be over. */
async function pause(deps: UpkeepDeps, session: SessionRow): Promise<void> {
  await pauseLiveSession(deps, session, { event: "pause" }, (tx) => isOrgCapped(tx, session.org_id));
}

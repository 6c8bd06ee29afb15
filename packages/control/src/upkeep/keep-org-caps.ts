/** Every tick: organisations that sent their day's bytes are marked, and what of theirs is live is paused. */

import { markOrg } from "../egress/org-cap.ts";
import { isOrgCapped, listLiveOverCap, listOrgsWithWrongMark } from "../egress/org-cap-store.ts";
import { captureSession } from "../moves/pause-machine.ts";
import type { SessionRow } from "../sessions/store.ts";
import type { UpkeepDeps } from "./deps.ts";

/** Pauses under way at once; the others come with the next ticks. */
const AT_ONCE = 32;

export async function keepOrgCaps(deps: UpkeepDeps): Promise<void> {
  for (const orgId of await listOrgsWithWrongMark(deps.db, deps.egressCaps)) await markOrg(deps, orgId);
  const room = AT_ONCE - deps.operations.behindCount;
  if (room <= 0) return;
  for (const session of await listLiveOverCap(deps.db, room)) deps.operations.behind(pause(deps, session));
}

/** Decided anew at the claim: the cap may have been raised, or the day be over. */
async function pause(deps: UpkeepDeps, session: SessionRow): Promise<void> {
  await captureSession(deps, session, { event: "pause" }, (tx) => isOrgCapped(tx, session.org_id));
}

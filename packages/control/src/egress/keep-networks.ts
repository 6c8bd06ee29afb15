/** Every tick: what machines may send follows the day and the cap, and wishes that could not be applied are. */

import type { SessionRow } from "../sessions/store.ts";
import { type ApplyDeps, applyNetwork } from "./apply.ts";
import { listToKeep, saveWish } from "./network-store.ts";
import { limitNow } from "./prepare.ts";
import type { NetworkReports } from "./reports.ts";

/** Calls to the node under way at once. */
const AT_ONCE = 8;

export async function keepNetworks(deps: ApplyDeps & { networkReports: NetworkReports }): Promise<void> {
  const reported = await deps.networkReports.collect().then(
    () => undefined,
    (error: unknown) => ({ error }),
  );
  const sessions = await listToKeep(deps.db);
  const failures: unknown[] = [];
  const next = sessions.values();
  const work = async () => {
    for (const session of next) await keep(deps, session).catch((error: unknown) => failures.push(error));
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  if (failures.length > 0) throw failures[0];
  if (reported) throw reported.error;
}

async function keep(deps: ApplyDeps, session: SessionRow): Promise<void> {
  const limitBytes = await limitNow(deps.db, session);
  const isOther = limitBytes !== session.egress_limit_bytes;
  const wish = isOther ? await saveWish(deps.db, session, { limitBytes }) : session;
  // Undefined: somebody else changed the wish, and the next look finds it.
  if (wish && wish.network_applied < wish.network_generation) await applyNetwork(deps, wish);
}

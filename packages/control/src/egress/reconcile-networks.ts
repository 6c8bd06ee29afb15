/** Updates limits of machines by day and cap, and applies network changes that were not confirmed. Runs every tick. */
import type { SessionRow } from "../sessions/store.ts";
import { applyNetwork } from "./apply.ts";
import type { EgressDeps } from "./deps.ts";
import { listNetworksToReconcile, saveDesiredNetwork } from "./network-store.ts";
import { currentLimit } from "./prepare.ts";

type ReconcileDeps = Pick<EgressDeps, "db" | "nodes" | "log" | "networkReports">;

/** Concurrent calls to the node. */
const AT_ONCE = 8;

export async function reconcileNetworks(deps: ReconcileDeps): Promise<void> {
  const reported = await deps.networkReports.collect().then(
    () => undefined,
    (error: unknown) => ({ error }),
  );
  const sessions = await listNetworksToReconcile(deps.db);
  const failures: unknown[] = [];
  const next = sessions.values();
  const work = async () => {
    for (const session of next)
      await reconcile(deps, session).catch((error: unknown) => failures.push(error));
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  if (failures.length > 0) throw failures[0];
  if (reported) throw reported.error;
}

async function reconcile(deps: ReconcileDeps, session: SessionRow): Promise<void> {
  const limitBytes = await currentLimit(deps.db, session);
  const isOther = limitBytes !== session.egress_limit_bytes;
  const desired = isOther ? await saveDesiredNetwork(deps.db, session, { limitBytes }) : session;
  // Undefined: another call changed the row meanwhile. The next tick reads it.
  if (desired && desired.network_applied < desired.network_generation) await applyNetwork(deps, desired);
}

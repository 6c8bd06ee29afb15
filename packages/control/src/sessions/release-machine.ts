import type { Log } from "@vivarium/kit/log";
import type { Database } from "../db/pool.ts";
import type { NodeClient } from "../fleet/node-client.ts";
import { machineIdOf } from "./state.ts";
import { markMachineReleased, type SessionRow } from "./store.ts";

/**
 * Removes the machine of a session that needs none any more. A failure is not the caller's: the row says that the
 * machine was not released, and the sweep tries again.
 */
export async function releaseMachine(
  { db, nodes, log }: { db: Database; nodes: NodeClient; log: Log },
  session: SessionRow,
): Promise<void> {
  try {
    await nodes.deleteMachine(machineIdOf(session));
    await markMachineReleased(db, session.id);
  } catch (err) {
    log.warn({ err, session_id: session.id }, "the machine could not be removed yet; the sweep tries again");
  }
}

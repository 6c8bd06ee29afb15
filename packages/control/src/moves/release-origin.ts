import { crashPoint } from "@vivarium/kit/crash-point";
import type { Log } from "@vivarium/kit/log";
import type { Database } from "../db/pool.ts";
import type { NodeClient } from "../fleet/node-client.ts";
import { isOriginInUse } from "../sessions/store.ts";

/**
 * Deletes the snapshot of a deleted checkpoint or template version. If a session is being started from it, or the node
 * does not answer, the sweep deletes it later.
 */
export async function releaseOrigin(
  { db, nodes, log }: { db: Database; nodes: NodeClient; log: Log },
  snapshotId: string,
): Promise<void> {
  try {
    if (await isOriginInUse(db, snapshotId)) return;
    await nodes.deleteSnapshot(snapshotId);
    crashPoint("release.origin");
  } catch (err) {
    log.warn({ err, snapshot_id: snapshotId }, "a snapshot could not be deleted yet; the sweep tries again");
  }
}

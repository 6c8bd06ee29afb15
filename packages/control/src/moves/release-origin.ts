import { crashPoint } from "@vivarium/kit/crash-point";
import { listCreatingFrom } from "../sessions/store.ts";
import type { MoveDeps } from "./deps.ts";

/**
 * Deletes the snapshot of a deleted checkpoint or template version. If a session is being started from it, or the node
 * does not answer, the sweep deletes it later.
 */
export async function releaseOrigin(
  { db, nodes, log }: Pick<MoveDeps, "db" | "nodes" | "log">,
  snapshotId: string,
): Promise<void> {
  try {
    if ((await listCreatingFrom(db, snapshotId)).length > 0) return;
    await nodes.deleteSnapshot(snapshotId);
    crashPoint("release.origin");
  } catch (err) {
    log.warn({ err, snapshot_id: snapshotId }, "a snapshot could not be deleted yet; the sweep tries again");
  }
}

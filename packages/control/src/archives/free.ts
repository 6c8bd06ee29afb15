/** Frees the disk of a node that has little left: saved states whose archives are complete leave it, least recently used first. */
import { LIMITS } from "@vivarium/contract/api";
import type { NodeInfo, SnapshotStatus } from "@vivarium/contract/node";
import type { ArchiveDeps } from "./deps.ts";
import { listFreeable, saveWhereStatesAre } from "./store.ts";

type FreeDeps = Pick<ArchiveDeps, "db" | "nodes" | "log" | "hasArchives">;

/** Also writes which states the node has. */
export async function freeDisk({ db, nodes, log, hasArchives }: FreeDeps): Promise<void> {
  if (!hasArchives) return;
  const snapshots = await nodes.listSnapshots();
  const idsOf = (list: readonly SnapshotStatus[]) => list.map(({ snapshot_id: id }) => id);
  await saveWhereStatesAre(db, idsOf(snapshots));
  let wanted = bytesWanted(await nodes.info());
  if (wanted <= 0) return;
  const unused = snapshots
    .filter((one) => Date.now() - usedAt(one) > LIMITS.stateUnusedMs)
    .sort((one, other) => usedAt(one) - usedAt(other));
  for (const { snapshot_id: id, bytes } of unused) {
    if (wanted <= 0) return;
    // Race: an operation may begin meanwhile. It finds the state gone, and fetches it.
    if (!(await listFreeable(db, [id])).has(id)) continue;
    log.info(
      { snapshot_id: id, bytes },
      "the disk is short of room: a saved state is in the object store only",
    );
    await nodes.deleteSnapshot(id);
    wanted -= bytes;
  }
}

/** Bytes that are to be freed. */
function bytesWanted({ disk }: NodeInfo): number {
  return Math.max(LIMITS.diskFreeShare * disk.total_bytes, LIMITS.diskFreeBytes) - disk.free_bytes;
}

const usedAt = (one: SnapshotStatus) => Date.parse(one.used_at ?? one.created_at);

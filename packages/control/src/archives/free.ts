/** Frees the disk of a node that has little left: saved states whose archives are complete leave it, least recently used first. */
import { LIMITS } from "@vivarium/contract/api";
import type { NodeInfo, SnapshotStatus } from "@vivarium/contract/node";
import { type ArchiveStores, hasContents } from "../archive-records/place.ts";
import type { ArchiveDeps } from "./deps.ts";
import { packUnused } from "./pack-unused.ts";
import { listFreeable, saveWhereStatesAre } from "./store.ts";

type FreeDeps = ArchiveStores &
  Pick<ArchiveDeps, "db" | "nodes" | "log" | "keyring" | "hasArchives" | "hasWarmTier">;

/** Also writes which states the node has. */
export async function freeDisk(deps: FreeDeps): Promise<void> {
  const { db, nodes, hasArchives, hasWarmTier } = deps;
  if (!hasArchives && !hasWarmTier) return;
  const snapshots = await nodes.listSnapshots();
  await saveWhereStatesAre(db, idsOf(snapshots));
  const { disk } = await nodes.info();
  const wanted = leastFree(disk, hasArchives) - disk.free_bytes;
  if (wanted <= 0) return;
  const unused = snapshots
    .filter((one) => Date.now() - usedAt(one) > LIMITS.stateUnusedMs)
    .sort((one, other) => usedAt(one) - usedAt(other));
  const left = await deleteArchived(deps, unused, wanted);
  if (left.stay.length < unused.length) await saveWhereStatesAre(db, idsOf(await nodes.listSnapshots()));
  if (!hasWarmTier || left.wanted <= 0) return;
  await packUnused(deps, { all: snapshots, unused: left.stay }, { ...left, free: disk.free_bytes });
}

/** Deletes from the node what has its archive, until enough is free. Returns what stays, and how much is wanted still. */
async function deleteArchived(
  deps: FreeDeps,
  unused: readonly SnapshotStatus[],
  wanted: number,
): Promise<{ stay: SnapshotStatus[]; wanted: number }> {
  const { db, nodes, log, hasArchives } = deps;
  const freeable = new Set(
    (await listFreeable(db, idsOf(unused), hasArchives)).map((one) => one.snapshot_id),
  );
  const stay: SnapshotStatus[] = [];
  for (const one of unused) {
    const { snapshot_id: id, bytes } = one;
    const [archive] = wanted > 0 && freeable.has(id) ? await listFreeable(db, [id], hasArchives) : [];
    // Race: an operation may begin meanwhile. It finds the state gone, and fetches it.
    if (!archive || !(await hasContents(deps, archive))) {
      stay.push(one);
      continue;
    }
    log.info(
      { snapshot_id: id, bytes },
      "the disk is nearly full: a saved state is kept as its archive only",
    );
    await nodes.deleteSnapshot(id);
    wanted -= bytes;
  }
  return { stay, wanted };
}

const idsOf = (list: readonly SnapshotStatus[]) => list.map(({ snapshot_id: id }) => id);

/** Bytes that are to be free. A state of the warm tier frees only a part of what it takes, so less is packed than is put away. */
function leastFree({ total_bytes: total }: NodeInfo["disk"], hasArchives: boolean): number {
  const [share, bytes] = [LIMITS.diskFreeShare * total, LIMITS.diskFreeBytes];
  return hasArchives ? Math.max(share, bytes) : Math.min(share, bytes);
}

const usedAt = (one: SnapshotStatus) => Date.parse(one.used_at ?? one.created_at);

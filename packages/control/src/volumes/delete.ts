/** Deletes a volume: it is gone for callers at once, and its row when the node has none any more. */
import { crashPoint } from "@vivarium/kit/crash-point";
import type { Caller } from "../access/caller.ts";
import type { Scope } from "../access/principal.ts";
import { appendEntry } from "../audit/append.ts";
import { appendEvent } from "../events/append.ts";
import type { VolumeDeps } from "./deps.ts";
import { getVolume, requireFree } from "./get.ts";
import { deleteVolumeRow, listUnfinished, markDeleting } from "./store.ts";

export async function deleteVolume(
  deps: VolumeDeps,
  scope: Scope,
  { id, by }: { id: string; by: Caller },
): Promise<void> {
  await deps.db.transaction().execute(async (tx) => {
    const { org_id: orgId, project_id: projectId, ...row } = await getVolume(tx, scope, id, { lock: true });
    requireFree({ ...row, org_id: orgId, project_id: projectId });
    await markDeleting(tx, id);
    await appendEvent(tx, { type: "volume.deleted", orgId, projectId, data: { volume_id: id } });
    await appendEntry(deps, tx, { by, action: "volume.delete", target: id });
  });
  crashPoint("volume_delete.commit");
  await finishDelete(deps, id).catch((err: unknown) =>
    deps.log.warn({ err, volume_id: id }, "a volume could not be deleted yet; the sweep tries again"),
  );
}

export async function finishDelete(
  { db, nodes }: Pick<VolumeDeps, "db" | "nodes">,
  id: string,
): Promise<void> {
  await nodes.deleteVolume(id);
  crashPoint("volume_delete.removed");
  await deleteVolumeRow(db, id);
}

/** A part of the sweep: finishes deletes, and takes back volumes whose maker died. */
export async function finishVolumes(deps: Pick<VolumeDeps, "db" | "nodes">): Promise<void> {
  for (const { id } of await listUnfinished(deps.db)) {
    await markDeleting(deps.db, id);
    await finishDelete(deps, id);
  }
}

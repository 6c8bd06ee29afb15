/** Makes a volume: its row first, then the volume on the node. */
import { ID_PREFIXES } from "@vivarium/contract/api";
import { crashPoint } from "@vivarium/kit/crash-point";
import { randomId } from "@vivarium/kit/id";
import type { Caller } from "../access/caller.ts";
import type { Principal } from "../access/principal.ts";
import { lockOrg } from "../access/store.ts";
import { appendEntry } from "../audit/append.ts";
import { ApiError } from "../errors/api-error.ts";
import { appendEvent } from "../events/append.ts";
import { apiErrorOfPreparation } from "../fleet/api-error-of-node.ts";
import { NodeError } from "../fleet/node-error.ts";
import { finishDelete } from "./delete.ts";
import type { VolumeDeps } from "./deps.ts";
import { checkQuota, checkSize } from "./quota.ts";
import { insertVolume, markDeleting, markReady, type VolumeRow } from "./store.ts";

export async function createVolume(
  deps: VolumeDeps,
  { orgId, scopedProjectId, defaultProjectId }: Principal,
  { sizeGb = deps.volumeSizes.usualGb, by }: { sizeGb?: number | undefined; by: Caller },
): Promise<VolumeRow> {
  checkSize(deps.volumeSizes, sizeGb);
  const { id } = await deps.db.transaction().execute(async (tx) => {
    await lockOrg(tx, orgId);
    await checkQuota(deps.volumeSizes, tx, orgId, sizeGb);
    return await insertVolume(tx, {
      id: ID_PREFIXES.volume + randomId(),
      org_id: orgId,
      project_id: scopedProjectId ?? defaultProjectId,
      size_gb: sizeGb,
    });
  });
  crashPoint("volume_create.commit");
  try {
    await deps.nodes.putVolume(id, sizeGb);
  } catch (error) {
    await giveUp(deps, id);
    throw error instanceof NodeError ? apiErrorOfPreparation(error) : error;
  }
  crashPoint("volume_create.made");
  const made = await deps.db.transaction().execute(async (tx) => {
    const row = await markReady(tx, id);
    if (!row) return undefined;
    const data = { volume_id: id, size_gb: sizeGb };
    await appendEvent(tx, { type: "volume.created", orgId, projectId: row.project_id, data });
    await appendEntry(deps, tx, { by, action: "volume.create", target: id, meta: { size_gb: sizeGb } });
    return row;
  });
  if (made) return made;
  throw new ApiError("unavailable", "the volume was not made in time, and is taken back; try again");
}

/** The caller knows nothing of the volume, so it is deleted. The sweep does it if this fails. */
async function giveUp(deps: VolumeDeps, id: string): Promise<void> {
  await markDeleting(deps.db, id)
    .then(() => finishDelete(deps, id))
    .catch((err: unknown) =>
      deps.log.warn({ err, volume_id: id }, "a volume that was not made is deleted later"),
    );
}

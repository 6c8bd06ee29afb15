/** Makes a volume larger. The node does it when the volume is attached the next time. */
import type { Caller } from "../access/caller.ts";
import type { Scope } from "../access/principal.ts";
import { lockOrg } from "../access/store.ts";
import { appendEntry } from "../audit/append.ts";
import { invalidField } from "../http/validation.ts";
import type { VolumeDeps } from "./deps.ts";
import { getVolume, requireFree } from "./get.ts";
import { checkQuota, checkSize } from "./quota.ts";
import { setSize, type VolumeRow } from "./store.ts";

export async function growVolume(
  deps: VolumeDeps,
  scope: Scope,
  { id, sizeGb, by }: { id: string; sizeGb: number; by: Caller },
): Promise<VolumeRow> {
  checkSize(deps.volumeSizes, sizeGb);
  return await deps.db.transaction().execute(async (tx) => {
    // In this order, as a create of a session does.
    const row = await getVolume(tx, scope, id, { lock: true });
    await lockOrg(tx, scope.orgId);
    if (sizeGb <= row.size_gb)
      throw invalidField("size_gb", `must be more than ${row.size_gb}, the size of the volume`, sizeGb);
    requireFree(row);
    await checkQuota(deps.volumeSizes, tx, scope.orgId, sizeGb - row.size_gb);
    const meta = { size_gb: sizeGb, before_gb: row.size_gb };
    await appendEntry(deps, tx, { by, action: "volume.grow", target: id, meta });
    return await setSize(tx, id, sizeGb);
  });
}

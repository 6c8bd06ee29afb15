/** Bounds on the sizes of volumes: of one, and of all of an organisation. */
import type { Queries } from "../db/pool.ts";
import { ApiError } from "../errors/api-error.ts";
import { invalidField } from "../http/validation.ts";
import { countGb } from "./store.ts";

/** The operator's settings, in GiB. */
export interface VolumeSizes {
  /** Where a create names no size. */
  usualGb: number;
  maxGb: number;
  /** All volumes of an organisation together. */
  orgGb: number;
}

export function checkSize({ maxGb }: VolumeSizes, sizeGb: number): void {
  if (sizeGb > maxGb) throw invalidField("size_gb", `must be at most ${maxGb}`, sizeGb);
}

/** The caller has locked the organisation's row, so that no other volume is counted meanwhile. */
export async function checkQuota(
  { orgGb }: VolumeSizes,
  tx: Queries,
  orgId: string,
  moreGb: number,
): Promise<void> {
  const usedGb = await countGb(tx, { orgId, projectId: null });
  if (usedGb + moreGb <= orgGb) return;
  throw new ApiError(
    "conflict",
    `size_gb: the volumes of your organisation may have ${orgGb} GB together, and have no ${moreGb} left; delete one first`,
  );
}

/** Finds a caller's volume, or throws the error that the caller gets. */
import { VOLUME_ID_PATTERN } from "@vivarium/contract/api";
import type { Scope } from "../access/principal.ts";
import type { Queries } from "../db/pool.ts";
import { ApiError } from "../errors/api-error.ts";
import { findVolume, type VolumeRow } from "./store.ts";

/** A foreign, deleted or unknown id is the same 404. With `lock`, nobody changes the row before the transaction ends. */
export async function getVolume(
  db: Queries,
  scope: Scope,
  id: string,
  { field, lock }: { field?: string; lock?: boolean } = {},
): Promise<VolumeRow> {
  const row = VOLUME_ID_PATTERN.test(id) ? await findVolume(db, scope, id, { lock }) : undefined;
  if (row) return row;
  throw new ApiError(
    "not_found",
    `${field ? `${field}: ` : "volume not found: "}no volume of your organisation has this id`,
  );
}

/** Refuses a volume that a session has. */
export function requireFree({ session_id: holder }: VolumeRow, field = ""): void {
  if (holder === null) return;
  throw new ApiError(
    "conflict",
    `${field}the volume is attached to session ${holder}, which keeps it while it is paused, too; delete that session first`,
  );
}

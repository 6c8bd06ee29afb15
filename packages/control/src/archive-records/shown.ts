/** The part of records that says where saved states are. */
import type { Archive as ShownArchive, SNAPSHOT_TIERS } from "@vivarium/contract/api";
import type { Queries } from "../db/pool.ts";
import { type Archive, findArchivesOf } from "./store.ts";

export interface ShownState {
  archive: ShownArchive;
  tier: (typeof SNAPSHOT_TIERS)[number];
}

const NONE: ShownState = { archive: { status: "unavailable" }, tier: "hot" };

/** By snapshot. */
export async function readShownStates(
  db: Queries,
  snapshotIds: readonly (string | null)[],
): Promise<(snapshotId: string | null) => ShownState> {
  const ids = snapshotIds.filter((id) => id !== null);
  const rows = new Map((await findArchivesOf(db, ids)).map((row) => [row.snapshot_id, row]));
  return (id) => {
    const row = rows.get(id ?? "");
    return row ? { archive: toArchive(row), tier: row.is_cold ? "cold" : "hot" } : NONE;
  };
}

export function toArchive({ state, uploaded_at, error }: Archive): ShownArchive {
  return {
    status: state,
    ...(uploaded_at && { uploaded_at: uploaded_at.toISOString() }),
    ...(error !== null && { detail: error }),
  };
}

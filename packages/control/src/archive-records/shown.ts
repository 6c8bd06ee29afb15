/** The part of records that says where saved states are. */
import type { Archive as ShownArchive, SNAPSHOT_TIERS } from "@vivarium/contract/api";
import type { Queries } from "../db/pool.ts";
import { type Archive, findPlaced } from "./store.ts";

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
  const rows = new Map((await findPlaced(db, ids)).map((row) => [row.snapshot_id, row]));
  return (id) => {
    const row = rows.get(id ?? "");
    if (!row) return NONE;
    if (row.is_local) return { ...NONE, tier: row.is_cold ? "warm" : "hot" };
    return { archive: toArchive(row), tier: row.is_cold ? "cold" : "hot" };
  };
}

/** Whether the warm tier has the state. The node may have it as well. */
export async function isWarm(db: Queries, snapshotId: string | undefined): Promise<boolean> {
  const [found] = snapshotId === undefined ? [] : await findPlaced(db, [snapshotId]);
  return found?.is_local === true && found.state === "complete";
}

export function toArchive({ state, uploaded_at, error }: Archive): ShownArchive {
  return {
    status: state,
    ...(uploaded_at && { uploaded_at: uploaded_at.toISOString() }),
    ...(error !== null && { detail: error }),
  };
}

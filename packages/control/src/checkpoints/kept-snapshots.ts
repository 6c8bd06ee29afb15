import type { Queries } from "../db/pool.ts";
import { keepOnlyCheckpoints } from "./store.ts";

/** Which of these snapshots are checkpoints, and therefore not to be removed. */
export async function checkpointSnapshots(db: Queries, ids: string[]): Promise<string[]> {
  return await keepOnlyCheckpoints(db, ids);
}

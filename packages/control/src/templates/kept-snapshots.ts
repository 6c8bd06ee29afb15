import type { Queries } from "../db/pool.ts";
import { keepOnlyVersions } from "./store.ts";

/** Which of these snapshots are versions of templates, and therefore not to be removed. */
export async function templateSnapshots(db: Queries, ids: string[]): Promise<string[]> {
  return await keepOnlyVersions(db, ids);
}

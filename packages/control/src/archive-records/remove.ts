import type { Queries } from "../db/pool.ts";
import { deleteArchive } from "./store.ts";

/** Destroys the key of a snapshot's archive in the transaction of its owner's deletion. What others are based on stays for them. */
export async function deleteArchiveOf(tx: Queries, snapshotId: string): Promise<void> {
  await deleteArchive(tx, snapshotId);
}

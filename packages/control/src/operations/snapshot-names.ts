/**
 * Names of all snapshots that operations of this database chose. Each is recorded before the node makes the snapshot.
 * The node may have others: those of another database, or those made after the backup that this database was restored
 * from.
 */
import type { Queries } from "../db/pool.ts";
import { deleteNames, insertName, keepOnlyNamed, listOldNames } from "./store.ts";

/** Those of the snapshots that this database asked for, whether or not a row still refers to them. */
export async function ownSnapshots(db: Queries, ids: string[]): Promise<string[]> {
  return await keepOnlyNamed(db, ids);
}

/** Records a snapshot that a row adopts although no operation of this database asked for it. */
export async function recordSnapshotName(db: Queries, id: string): Promise<void> {
  await insertName(db, id);
}

/** Deletes names of snapshots that are neither on the node (`listed`) nor referred to by a row (`owners`). */
export async function deleteGoneNames(
  db: Queries,
  listed: string[],
  owners: (ids: string[]) => Promise<Set<string>>,
): Promise<void> {
  let after = "";
  for (;;) {
    const old = await listOldNames(db, { after, except: listed });
    const last = old.at(-1);
    if (last === undefined) return;
    const owned = await owners(old);
    await deleteNames(
      db,
      old.filter((id) => !owned.has(id)),
    );
    after = last;
  }
}

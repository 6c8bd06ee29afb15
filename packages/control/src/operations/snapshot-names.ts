/**
 * The names of all snapshots that operations of this database chose: each is written down before the node is asked to
 * make it. A node may have others: of a database that was exchanged, or of the time after the one that a backup brought
 * back.
 */
import type { Queries } from "../db/pool.ts";
import { deleteNames, insertName, keepOnlyNamed, listOldNames } from "./store.ts";

/** Which of these snapshots this database knows to be its own, also those that nobody keeps any more. */
export async function ownSnapshots(db: Queries, ids: string[]): Promise<string[]> {
  return await keepOnlyNamed(db, ids);
}

/** One that a row takes over although no operation of this database asked for it. */
export async function nameSnapshot(db: Queries, id: string): Promise<void> {
  await insertName(db, id);
}

/** Names of what is gone: not on the node, of which these are listed, and kept by nobody, which `owners` tells. */
export async function forgetGoneSnapshots(
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

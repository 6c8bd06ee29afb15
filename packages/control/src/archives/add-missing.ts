/** Adds archives of states that were saved before the service kept any, or had a bucket, or that a row caught up with. */
import { addArchive } from "../archive-records/add.ts";
import { findSessionsById } from "../sessions/store.ts";
import type { ArchiveDeps } from "./deps.ts";
import { deleteOutgrown, listUnarchived } from "./store.ts";

export async function addMissing(
  deps: Pick<ArchiveDeps, "db" | "nodes" | "keyring" | "hasArchives">,
): Promise<void> {
  if (!deps.hasArchives) return;
  const snapshots = new Map((await deps.nodes.listSnapshots()).map((one) => [one.snapshot_id, one]));
  await deleteOutgrown(deps.db, [...snapshots.keys()]);
  const missing = await listUnarchived(deps.db, [...snapshots.keys()]);
  const found = await findSessionsById(
    deps.db,
    missing.map(({ session_id: id }) => id),
  );
  const sessions = new Map(found.map((session) => [session.id, session]));
  for (const { kind, snapshot_id: id, session_id } of missing) {
    const [session, snapshot] = [sessions.get(session_id), snapshots.get(id)];
    if (kind === "baseline" || !session || !snapshot) continue;
    // The owner may have gone since; the sweep deletes the row then.
    await deps.db.transaction().execute((tx) => addArchive(deps, tx, { kind, session, snapshot }));
  }
}

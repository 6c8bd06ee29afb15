/**
 * The warm tier, where there is no bucket: saved states that nobody used lately are packed into a directory of this host when its
 * disk is nearly full, compressed and without what they share, and leave the node once that is done.
 */
import type { SnapshotStatus } from "@vivarium/contract/node";
import { GIB, MIB } from "@vivarium/kit/sizes";
import { addLocalArchive } from "../archive-records/add.ts";
import { findSessionsById } from "../sessions/store.ts";
import type { ArchiveDeps } from "./deps.ts";
import { countUnpacked, listUnarchived } from "./store.ts";

/** Smaller states are left alone: their archives would take nearly as much. */
const LEAST_BYTES = 4 * MIB;
/** With less, nothing more is packed: the first state takes its baseline along, which is about 250 MiB. */
const LEAST_FREE_BYTES = GIB;

interface Room {
  /** Bytes that are to be freed. */
  wanted: number;
  free: number;
}

/** `unused`: the states to choose from, in the order in which they are packed. */
export async function packUnused(
  deps: Pick<ArchiveDeps, "db" | "keyring" | "log">,
  unused: readonly SnapshotStatus[],
  { wanted, free }: Room,
): Promise<void> {
  const { db, log } = deps;
  // How much those will free is not known yet.
  if (free < LEAST_FREE_BYTES || (await countUnpacked(db)) > 0) return;
  // A sealed state does not become smaller.
  const worthIt = unused.filter(({ bytes, sealed }) => bytes >= LEAST_BYTES && !sealed);
  const owners = await listUnarchived(
    db,
    worthIt.map(({ snapshot_id: id }) => id),
  );
  const sessions = new Map(
    (
      await findSessionsById(
        db,
        owners.map(({ session_id: id }) => id),
      )
    ).map((session) => [session.id, session]),
  );
  let left = wanted;
  for (const snapshot of worthIt) {
    if (left <= 0) return;
    const owner = owners.find(({ snapshot_id: id }) => id === snapshot.snapshot_id);
    const session = owner && sessions.get(owner.session_id);
    if (!owner || owner.kind === "baseline" || !session) continue;
    const { kind } = owner;
    // The owner may have gone since; the sweep deletes the row then.
    const added = await db
      .transaction()
      .execute((tx) => addLocalArchive(deps, tx, { kind, session, snapshot }));
    if (!added) return;
    log.info({ snapshot_id: snapshot.snapshot_id }, "the disk is nearly full: a saved state is packed");
    left -= snapshot.bytes;
  }
}

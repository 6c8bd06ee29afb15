/**
 * The warm tier, where there is no bucket: saved states that nobody used lately are packed into a directory of this host when its
 * disk is nearly full, compressed and without what they share, and leave the node once that is done.
 */
import type { SnapshotStatus } from "@vivarium/contract/node";
import { MIB } from "@vivarium/kit/sizes";
import { addLocalArchive } from "../archive-records/add.ts";
import { findSessionsById } from "../sessions/store.ts";
import type { ArchiveDeps } from "./deps.ts";
import { hasLocalSpace, LEAST_FREE_BYTES, readLocalFree } from "./local-free.ts";
import { countUnpacked, listUnarchived } from "./store.ts";

/** Smaller states are left alone: their archives would take nearly as much. */
const LEAST_BYTES = 4 * MIB;

interface Wanted {
  /** Bytes that are to be freed. */
  wanted: number;
  /** Free bytes of the node's disk. */
  free: number;
}

/** `unused`: the states to choose from, in the order in which they are packed. */
export async function packUnused(
  deps: Pick<ArchiveDeps, "db" | "keyring" | "log" | "localObjects">,
  { all, unused }: { all: readonly SnapshotStatus[]; unused: readonly SnapshotStatus[] },
  { wanted, free }: Wanted,
): Promise<void> {
  const { db, log } = deps;
  const local = Math.min(free, await readLocalFree(deps));
  // How much those that are packed already will free is not known yet.
  if (!hasLocalSpace(local) || (await countUnpacked(db)) > 0) return;
  // Until they leave, the states and their archives are there both.
  let left = Math.min(wanted, (local - LEAST_FREE_BYTES) / 2);
  const owners = await listUnarchived(
    db,
    all.map(({ snapshot_id: id }) => id),
  );
  const found = await findSessionsById(
    db,
    owners.map(({ session_id: id }) => id),
  );
  const sessions = new Map(found.map((session) => [session.id, session]));
  // A state that shares its files with a checkpoint frees nothing, and such a copy has no bytes of its own.
  const small = new Set(all.filter(({ bytes }) => bytes < LEAST_BYTES).map(({ snapshot_id: id }) => id));
  const sharing = new Set(owners.filter((one) => small.has(one.snapshot_id)).map((one) => one.session_id));
  for (const snapshot of unused) {
    const owner = owners.find(({ snapshot_id: id }) => id === snapshot.snapshot_id);
    const session = owner && sessions.get(owner.session_id);
    if (!owner || owner.kind === "baseline" || !session || sharing.has(session.id)) continue;
    if (!isWorthIt(snapshot, session) || snapshot.bytes > left) continue;
    const { kind } = owner;
    // The owner may have gone since; the sweep deletes the row then.
    const added = await db
      .transaction()
      .execute((tx) => addLocalArchive(deps, tx, { kind, session, snapshot }));
    if (!added) continue;
    log.info({ snapshot_id: snapshot.snapshot_id }, "the disk is nearly full: a saved state is packed");
    left -= snapshot.bytes;
  }
}

/**
 * A sealed state does not become smaller. One of a session that was made from a checkpoint, a template or another session
 * shares blocks with that, which its archive would have once more: an archive differs from the baseline.
 */
function isWorthIt(
  { bytes, sealed }: SnapshotStatus,
  { origin_snapshot_id: origin }: { origin_snapshot_id: string | null },
): boolean {
  return bytes >= LEAST_BYTES && !sealed && origin === null;
}

/**
 * Deletes snapshots that no row keeps: what a process left that died between making one and keeping it. Only those that
 * this database knows to be its own: a database that was exchanged, or brought back from a backup, must not cost what
 * was saved under the other one.
 */
import type { SnapshotStatus } from "@vivarium/contract/node";
import type { Log } from "@vivarium/kit/log";
import type { Database, Queries } from "../db/pool.ts";
import type { NodeClient } from "../fleet/node-client.ts";
import { catchUpWithSavedState } from "../moves/catch-up.ts";
import { forgetGoneSnapshots, ownSnapshots } from "../operations/snapshot-names.ts";
import { sessionIdOf, WAKES_FROM } from "../sessions/state.ts";
import { findSessionsById } from "../sessions/store.ts";

/** Which of these snapshots a room's rows need. */
export type SnapshotOwners = (db: Queries, ids: string[]) => Promise<string[]>;

/**
 * A snapshot changes hands in one transaction, but rooms are asked one after the other, so that one look may miss it
 * on its way from a room that is asked later to one that was asked before. Two looks this far apart do not.
 */
const BETWEEN_LOOKS_MS = 5_000;

export interface OrphanDeps {
  db: Database;
  nodes: NodeClient;
  log: Log;
  snapshotOwners: readonly SnapshotOwners[];
  /** Snapshots that no row named at the last look, and since when. */
  orphansSince: Map<string, number>;
  /** Snapshots that are not this database's, as told to the log. */
  strangers: Set<string>;
}

export async function removeOrphanSnapshots(deps: OrphanDeps): Promise<void> {
  // The node is asked before the database: a row names a snapshot before the node is asked to make it, so that one
  // which exists by now, and which no row names from now on, was given up. Asked the other way round, one that is made
  // in between would look like nobody's.
  const snapshots = await deps.nodes.listSnapshots();
  const ids = idsOf(snapshots);
  const owned = await ownersOf(deps, ids);
  const unowned = ids.filter((id) => !owned.has(id));
  const orphans = new Set(await ownSnapshots(deps.db, unowned));
  const strangers = snapshots.filter(({ snapshot_id: id }) => !owned.has(id) && !orphans.has(id));
  await catchUpPaused(deps, strangers);
  tellStrangers(deps, idsOf(strangers));
  for (const id of deps.orphansSince.keys()) if (!orphans.has(id)) deps.orphansSince.delete(id);
  for (const id of orphans) await removeAtSecondLook(deps, id);
}

export async function forgetOrphanNames(deps: OrphanDeps): Promise<void> {
  await forgetGoneSnapshots(deps.db, await listed(deps), (ids) => ownersOf(deps, ids));
}

async function listed({ nodes }: OrphanDeps): Promise<string[]> {
  return idsOf(await nodes.listSnapshots());
}

const idsOf = (snapshots: readonly SnapshotStatus[]) => snapshots.map(({ snapshot_id: id }) => id);

/** Paused sessions that were woken and paused again since the backup that the database was brought back from. */
async function catchUpPaused(deps: OrphanDeps, strangers: SnapshotStatus[]): Promise<void> {
  const ids = new Set(strangers.flatMap(({ machine_id: id }) => (id === undefined ? [] : [sessionIdOf(id)])));
  for (const session of await findSessionsById(deps.db, [...ids])) {
    if (session.state === WAKES_FROM && session.op === null)
      await catchUpWithSavedState(deps, session, strangers);
  }
}

async function ownersOf({ db, snapshotOwners }: OrphanDeps, ids: string[]): Promise<Set<string>> {
  const owned = new Set<string>();
  for (const owners of snapshotOwners) for (const id of await owners(db, ids)) owned.add(id);
  return owned;
}

/** Somebody who knows where they come from decides; they hold room on the disk, so it is said. */
function tellStrangers({ strangers, log }: OrphanDeps, ids: string[]): void {
  const isNews = ids.some((id) => !strangers.has(id));
  strangers.clear();
  for (const id of ids) strangers.add(id);
  if (isNews)
    log.warn({ snapshots: ids }, "saved states that this database does not know are left as they are");
}

async function removeAtSecondLook(deps: OrphanDeps, id: string): Promise<void> {
  const now = performance.now();
  const since = deps.orphansSince.get(id) ?? now;
  deps.orphansSince.set(id, since);
  if (now - since < BETWEEN_LOOKS_MS) return;
  deps.log.info({ snapshot_id: id }, "removing a snapshot that nobody keeps");
  await deps.nodes.deleteSnapshot(id);
}

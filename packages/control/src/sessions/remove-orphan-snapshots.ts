/** Deletes snapshots that no row names: what a process left that died between making one and keeping it. */
import type { Log } from "@vivarium/kit/log";
import type { Database, Queries } from "../db/pool.ts";
import type { NodeClient } from "../fleet/node-client.ts";
import { findSnapshotsInUse, hasSessions } from "./store.ts";

/** Which of these snapshots a room's rows need. */
export type SnapshotOwners = (db: Queries, ids: string[]) => Promise<string[]>;

/**
 * A snapshot changes hands in one transaction, but rooms are asked one after the other, so that one look may miss it
 * on its way from a room that is asked later to one that was asked before. Two looks this far apart do not.
 */
const BETWEEN_LOOKS_MS = 5_000;
/** As the time of a first look: a second one never comes. */
const NEVER = Number.POSITIVE_INFINITY;

export interface OrphanDeps {
  db: Database;
  nodes: NodeClient;
  log: Log;
  snapshotOwners: readonly SnapshotOwners[];
  /** Snapshots that no row named at the last look, and since when. */
  orphansSince: Map<string, number>;
}

export const sessionSnapshots: SnapshotOwners = (db, ids) => findSnapshotsInUse(db, ids);

export async function removeOrphanSnapshots(deps: OrphanDeps): Promise<void> {
  // The node is asked before the database: a row names a snapshot before the node is asked to make it, so that one
  // which exists by now, and which no row names from now on, was given up. Asked the other way round, one that is made
  // in between would look like nobody's.
  const ids = (await deps.nodes.listSnapshots()).map(({ snapshot_id: id }) => id);
  const owned = new Set<string>();
  for (const owners of deps.snapshotOwners) for (const id of await owners(deps.db, ids)) owned.add(id);
  const orphans = new Set(ids.filter((id) => !owned.has(id)));
  if (orphans.size > 0 && owned.size === 0 && !(await hasSessions(deps.db)))
    return leaveForeign(deps, orphans);
  for (const id of deps.orphansSince.keys()) if (!orphans.has(id)) deps.orphansSince.delete(id);
  for (const id of orphans) await removeAtSecondLook(deps, id);
}

/**
 * A row is written before its snapshot is made: a database that never had a session is not the one these belong to. They
 * are nobody's for as long as this process runs, also once the database has sessions of its own.
 */
function leaveForeign({ orphansSince, log }: OrphanDeps, orphans: Set<string>): void {
  const isNews = [...orphans].some((id) => orphansSince.get(id) !== NEVER);
  for (const id of orphans) orphansSince.set(id, NEVER);
  if (isNews) log.warn({ snapshots: orphans.size }, "saved states of another database are left as they are");
}

async function removeAtSecondLook(deps: OrphanDeps, id: string): Promise<void> {
  const now = performance.now();
  const since = deps.orphansSince.get(id) ?? now;
  deps.orphansSince.set(id, since);
  if (now - since < BETWEEN_LOOKS_MS) return;
  deps.log.info({ snapshot_id: id }, "removing a snapshot that nobody keeps");
  await deps.nodes.deleteSnapshot(id);
}

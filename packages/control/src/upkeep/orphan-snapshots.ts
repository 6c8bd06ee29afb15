/**
 * Deletes orphan snapshots: a process died after it made one and before a row referred to it. Only snapshots that this
 * database asked for are deleted. After the database was replaced, or restored from a backup, the node has others.
 */
import type { SnapshotStatus } from "@vivarium/contract/node";
import type { Log } from "@vivarium/kit/log";
import type { Database, Queries } from "../db/pool.ts";
import type { NodeClient } from "../fleet/node-client.ts";
import { catchUpWithSavedState } from "../moves/catch-up.ts";
import { deleteOldNames, keepOnlyNamed } from "../operations/store.ts";
import { sessionIdOf, WAKES_FROM } from "../sessions/state.ts";
import { findSessionsById } from "../sessions/store.ts";

/** Returns those of the snapshots that rows of one kind refer to. */
export type SnapshotOwners = (db: Queries, ids: string[]) => Promise<string[]>;

/**
 * Race: a snapshot changes its owner in one transaction, but the tables are read one after the other, so one look can
 * miss the owner. Two looks this far apart cannot.
 */
const BETWEEN_LOOKS_MS = 5_000;

export interface OrphanDeps {
  db: Database;
  nodes: NodeClient;
  log: Log;
  snapshotOwners: readonly SnapshotOwners[];
}

export class OrphanSnapshots {
  /** Orphans at the last look, and since when. */
  readonly since: Map<string, number>;
  /** Snapshots on the node that this database does not know. */
  readonly unknown = new Set<string>();
  readonly #deps: OrphanDeps;

  constructor(deps: OrphanDeps, since = new Map<string, number>()) {
    this.#deps = deps;
    this.since = since;
  }

  /** One look. Deletes snapshots that were orphans at an earlier look as well. */
  async remove(): Promise<void> {
    // Race: the node is read before the database. A row names a snapshot before the node makes it, so if no row names a
    // snapshot of this list later, the snapshot was discarded.
    const snapshots = await this.#deps.nodes.listSnapshots();
    const ids = snapshots.map(idOf);
    const owned = await this.#ownersOf(ids);
    const unowned = ids.filter((id) => !owned.has(id));
    const orphans = new Set(await keepOnlyNamed(this.#deps.db, unowned));
    const unknown = snapshots.filter(({ snapshot_id: id }) => !owned.has(id) && !orphans.has(id));
    await catchUpPaused(this.#deps, unknown);
    this.#logUnknown(unknown.map(idOf));
    for (const id of this.since.keys()) if (!orphans.has(id)) this.since.delete(id);
    for (const id of orphans) await this.#removeAtSecondLook(id);
  }

  /** Deletes names of snapshots that are not on the node any more and that no row refers to. */
  async forgetNames(): Promise<void> {
    const listed = (await this.#deps.nodes.listSnapshots()).map(idOf);
    await deleteOldNames(this.#deps.db, listed, (ids) => this.#ownersOf(ids));
  }

  async #ownersOf(ids: string[]): Promise<Set<string>> {
    const owned = new Set<string>();
    for (const owners of this.#deps.snapshotOwners)
      for (const id of await owners(this.#deps.db, ids)) owned.add(id);
    return owned;
  }

  /** Logs unknown snapshots, because they take disk space. Only the operator can know where they come from. */
  #logUnknown(ids: string[]): void {
    const hasNew = ids.some((id) => !this.unknown.has(id));
    this.unknown.clear();
    for (const id of ids) this.unknown.add(id);
    if (hasNew)
      this.#deps.log.warn(
        { snapshots: ids },
        "saved states that this database does not know are left as they are",
      );
  }

  async #removeAtSecondLook(id: string): Promise<void> {
    const now = performance.now();
    const since = this.since.get(id) ?? now;
    this.since.set(id, since);
    if (now - since < BETWEEN_LOOKS_MS) return;
    this.#deps.log.info({ snapshot_id: id }, "removing an orphan snapshot");
    await this.#deps.nodes.deleteSnapshot(id);
  }
}

const idOf = ({ snapshot_id: id }: SnapshotStatus) => id;

/** Catches up paused sessions that were woken and paused again since the backup that the database was restored from. */
async function catchUpPaused(deps: OrphanDeps, unknown: SnapshotStatus[]): Promise<void> {
  const ids = new Set(unknown.flatMap(({ machine_id: id }) => (id === undefined ? [] : [sessionIdOf(id)])));
  for (const session of await findSessionsById(deps.db, [...ids])) {
    if (session.state === WAKES_FROM && session.op === null)
      await catchUpWithSavedState(deps, session, unknown);
  }
}

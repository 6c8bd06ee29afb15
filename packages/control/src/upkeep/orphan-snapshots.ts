/**
 * Deletes orphan snapshots: a process died after it made one and before a row referred to it. Only snapshots that this
 * database asked for are deleted. After the database was replaced, or restored from a backup, the node has others: they
 * catch up paused sessions whose row is older, or are only logged.
 */
import type { SnapshotStatus } from "@vivarium/contract/node";
import type { Queries } from "../db/pool.ts";
import { catchUpWithSavedState } from "../moves/catch-up.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { deleteOldNames, keepOnlyNamed } from "../operations/store.ts";
import { sessionIdOf, WAKES_FROM } from "../sessions/state.ts";
import { findSessionsById } from "../sessions/store.ts";
import { seenFor } from "./seen-for.ts";

/** Keeps only the snapshots that rows of one table refer to. */
export type SnapshotOwners = (db: Queries, ids: string[]) => Promise<string[]>;

/**
 * Time for which every pass must find a snapshot to be an orphan before it is deleted. Race: a snapshot changes its
 * owner in one transaction, but the tables are read one after the other, so one pass can miss the owner.
 */
const ORPHANED_FOR_MS = 5_000;

type OrphanDeps = Pick<MoveDeps, "db" | "nodes" | "auditKey" | "log"> & {
  snapshotOwners: readonly SnapshotOwners[];
};

export class OrphanSnapshots {
  /** Orphans of the last pass, each with the time (`performance.now()`) of the first pass that found it. */
  readonly since: Map<string, number>;
  /** Snapshots on the node that this database does not know. */
  unknown = new Set<string>();
  readonly #deps: OrphanDeps;

  constructor(deps: OrphanDeps, since = new Map<string, number>()) {
    this.#deps = deps;
    this.since = since;
  }

  /** One pass: deletes the snapshots that have been orphans in every pass for 5 s, and catches up paused sessions. */
  async removeOrCatchUp(): Promise<void> {
    // Race: the node is read before the database. A row names a snapshot before the node makes it, so if no row names a
    // snapshot of this list afterwards, its operation was rolled back or its owner was deleted.
    const snapshots = await this.#deps.nodes.listSnapshots();
    const ids = snapshots.map(idOf);
    const owned = await this.#ownersOf(ids);
    const unowned = ids.filter((id) => !owned.has(id));
    const orphans = new Set(await keepOnlyNamed(this.#deps.db, unowned));
    const unknown = snapshots.filter(({ snapshot_id: id }) => !owned.has(id) && !orphans.has(id));
    await catchUpPaused(this.#deps, unknown);
    this.#logUnknown(unknown.map(idOf));
    for (const id of seenFor(this.since, orphans, ORPHANED_FOR_MS)) {
      this.#deps.log.info({ snapshot_id: id }, "removing an orphan snapshot");
      await this.#deps.nodes.deleteSnapshot(id);
    }
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
    this.unknown = new Set(ids);
    const text = "saved states that this database does not know are left as they are";
    if (hasNew) this.#deps.log.warn({ snapshots: ids }, text);
  }
}

const idOf = ({ snapshot_id: id }: SnapshotStatus) => id;

/** Catches up sessions that are paused in the restored backup, and were woken and paused again since. */
async function catchUpPaused(deps: OrphanDeps, unknown: SnapshotStatus[]): Promise<void> {
  const ids = new Set(unknown.flatMap(({ machine_id: id }) => (id === undefined ? [] : [sessionIdOf(id)])));
  for (const session of await findSessionsById(deps.db, [...ids])) {
    if (session.state === WAKES_FROM && session.op === null)
      await catchUpWithSavedState(deps, session, unknown);
  }
}

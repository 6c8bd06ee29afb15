/**
 * Deletes orphan snapshots: a process died after it made one and before a row referred to it. Only snapshots that this
 * database asked for are deleted. After the database was replaced, or restored from a backup, the node has others.
 */
import type { SnapshotStatus } from "@vivarium/contract/node";
import type { Queries } from "../db/pool.ts";
import { catchUpWithSavedState } from "../moves/catch-up.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { deleteOldNames, keepOnlyNamed } from "../operations/store.ts";
import { sessionIdOf, WAKES_FROM } from "../sessions/state.ts";
import { findSessionsById } from "../sessions/store.ts";
import { seenFor } from "./seen-for.ts";

/** Returns those of the snapshots that rows of one kind refer to. */
export type SnapshotOwners = (db: Queries, ids: string[]) => Promise<string[]>;

/**
 * Race: a snapshot changes its owner in one transaction, but the tables are read one after the other, so one look can
 * miss the owner. Two looks this far apart cannot.
 */
const BETWEEN_LOOKS_MS = 5_000;

type OrphanDeps = Pick<MoveDeps, "db" | "nodes" | "log"> & { snapshotOwners: readonly SnapshotOwners[] };

export class OrphanSnapshots {
  /** Orphans at the last look, and since when. */
  readonly since: Map<string, number>;
  /** Snapshots on the node that this database does not know. */
  unknown = new Set<string>();
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
    for (const id of seenFor(this.since, orphans, BETWEEN_LOOKS_MS)) {
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

/** Catches up paused sessions that were woken and paused again since the backup that the database was restored from. */
async function catchUpPaused(deps: OrphanDeps, unknown: SnapshotStatus[]): Promise<void> {
  const ids = new Set(unknown.flatMap(({ machine_id: id }) => (id === undefined ? [] : [sessionIdOf(id)])));
  for (const session of await findSessionsById(deps.db, [...ids])) {
    if (session.state === WAKES_FROM && session.op === null)
      await catchUpWithSavedState(deps, session, unknown);
  }
}

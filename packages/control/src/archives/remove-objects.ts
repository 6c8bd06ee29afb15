/**
 * Removes objects of archives that are no more: those of a space without a row, and in a space that is left what no archive names.
 * The handler of a background job, and a sweep for what jobs missed.
 */
import { crashPoint } from "@vivarium/kit/crash-point";
import type { ObjectStore } from "@vivarium/objects/store";
import { type ArchiveStores, prefixOf, storeOf } from "../archive-records/place.ts";
import { findSpace, type SpaceRow } from "../archive-records/store.ts";
import type { Database } from "../db/pool.ts";
import { keepOnlyNamed, keepOnlySpaces, leaseSpace, listSpaces, releaseSpace } from "./store.ts";

interface RemovalDeps extends ArchiveStores {
  db: Database;
}

interface RemovalOptions {
  /** Objects that are younger stay. */
  graceMs: number;
  stopping: AbortSignal;
}

type Space = Pick<SpaceRow, "id" | "org_id">;

/** Objects that are younger are left alone by the sweep: their row may be in a database that is being restored. */
const GRACE_MS = 24 * 3_600_000;
/** Objects that are looked up in the database at a time; the lease is renewed for each lot. */
const PAGE = 100;
const LEASE_MS = 600_000;
const NAME = /^[0-9a-f]{64}$/;
const SPACE = /^spc_[a-z0-9]{21}$/;

/** Input of the job. There may be no row any more that it could name. */
export const removalOf = ({ org_id: org, id }: Space) => `${org}/${id}`;

export async function removeArchived(deps: RemovalDeps, input: string, stopping: AbortSignal): Promise<void> {
  const [org_id = "", id = ""] = input.split("/");
  const space = { org_id, id };
  const found = await findSpace(deps.db, id);
  if (found) return await sweepSpace(deps, found, { graceMs: 0, stopping });
  for (const objects of storesIn(deps))
    await removeWhole({ ...deps, objects }, space, { graceMs: 0, stopping });
}

/** Removes what no row names, once it is old enough. */
export async function removeOrphanChunks(deps: RemovalDeps, graceMs = GRACE_MS): Promise<void> {
  const stopping = new AbortController().signal;
  for (let after = ""; ; ) {
    const spaces = await listSpaces(deps.db, after);
    for (const space of spaces) await sweepSpace(deps, space, { graceMs, stopping });
    if (spaces.length === 0) break;
    after = spaces.at(-1)?.id ?? after;
  }
  for (const objects of storesIn(deps))
    for (const space of await listUnknown(deps.db, objects))
      await removeWhole({ ...deps, objects }, space, { graceMs, stopping });
}

/** The stores, each once. No row says which of them has had the objects of a space that is gone. */
const storesIn = ({ objects, localObjects }: ArchiveStores) => new Set([objects, localObjects]);

/** Nothing is removed while something is packed into the space, or waits for it. */
async function sweepSpace(
  deps: RemovalDeps,
  space: Space & Pick<SpaceRow, "is_local">,
  options: RemovalOptions,
): Promise<void> {
  const { db } = deps;
  const objects = storeOf(deps, space);
  const prefix = prefixOf(space);
  let held = await db.transaction().execute((tx) => leaseSpace(tx, space.id, LEASE_MS));
  if (!held) return;
  try {
    for await (const keys of pagesOf(objects, prefix, options.graceMs)) {
      options.stopping.throwIfAborted();
      const renewed = await db.transaction().execute((tx) => leaseSpace(tx, space.id, LEASE_MS, held));
      if (!renewed) return;
      held = renewed;
      const until = performance.now() + LEASE_MS / 2;
      const names = keys.map((key) => key.slice(prefix.length)).filter((name) => NAME.test(name));
      const named = await keepOnlyNamed(db, space.id, names);
      for (const name of names.filter((one) => !named.has(one))) {
        // A store that is slow must not be asked to delete when the lease has lapsed. The next sweep continues.
        if (performance.now() > until) return;
        await objects.delete(prefix + name);
      }
    }
  } finally {
    await releaseSpace(db, space.id, held);
  }
}

async function removeWhole(
  { db, objects }: { db: Database; objects: ObjectStore },
  space: Space,
  { graceMs, stopping }: RemovalOptions,
): Promise<void> {
  for await (const keys of pagesOf(objects, prefixOf(space), graceMs)) {
    stopping.throwIfAborted();
    if (await findSpace(db, space.id)) return;
    for (const key of keys) await objects.delete(key);
    crashPoint("archive.objects_removed");
  }
}

async function* pagesOf(objects: ObjectStore, prefix: string, graceMs: number): AsyncGenerator<string[]> {
  let page: string[] = [];
  for await (const { key, modifiedAt } of objects.list(prefix)) {
    if (Date.now() - modifiedAt.getTime() < graceMs) continue;
    page.push(key);
    if (page.length < PAGE) continue;
    yield page;
    page = [];
  }
  if (page.length > 0) yield page;
}

/** Spaces that have objects and no row. */
async function listUnknown(db: Database, objects: ObjectStore): Promise<Space[]> {
  const found = new Map<string, Space>();
  for await (const { key } of objects.list("")) {
    const [org_id = "", kind, id = ""] = key.split("/");
    if (kind === "archives" && SPACE.test(id)) found.set(id, { org_id, id });
  }
  const kept = await keepOnlySpaces(db, [...found.keys()]);
  return [...found.values()].filter(({ id }) => !kept.has(id));
}

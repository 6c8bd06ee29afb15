/**
 * Reads archives back against the digests of their chunks, for a check of everything that is stored. A damaged object is
 * deleted: a packing finds objects by name, and would take it for one that is there. Then the state is packed again, if a node
 * has it still.
 */
import { type Damage, readBack } from "@vivarium/archive/read-back";
import { messageOf } from "@vivarium/kit/unknown-error";
import { type PlaceDeps, placeOf, prefixOf, storeOf } from "../archive-records/place.ts";
import { type Archive, findArchive, findSpace } from "../archive-records/store.ts";
import type { Database } from "../db/pool.ts";
import { leaseSpace, listComplete, packAgain, releaseSpace } from "./store.ts";

type ReadBackDeps = PlaceDeps & { db: Database };

/** Reasons for which the object is not what was put, whatever key it is opened with. */
const OF_THE_OBJECT: ReadonlySet<string> = new Set(["missing", "cut_short", "too_long", "altered"]);
const LEASE_MS = 600_000;

interface ReadArchive {
  /** Its space, by which an operator finds it: archives of one session share chunks. */
  id: string;
  damages: string[];
}

/** `onRead`: called with the bytes of each chunk, before the next one is read. */
export async function* readBackArchives(
  deps: ReadBackDeps,
  onRead: (bytes: number) => Promise<void>,
): AsyncGenerator<ReadArchive> {
  for (let after = ""; ; ) {
    const page = await listComplete(deps.db, after);
    for (const archive of page) {
      const damages = await damagesOf(deps, archive, onRead);
      after = archive.id;
      // An archive that was deleted meanwhile is not damaged.
      if (damages.length > 0 && !(await findArchive(deps.db, archive.id))) continue;
      yield {
        id: archive.space_id,
        damages: damages.map((damage) => `${archive.kind} ${archive.snapshot_id}: ${textOf(damage)}`),
      };
      await mend(deps, archive, damages);
    }
    if (page.length === 0) return;
  }
}

type Found = Damage | { error: Error; file?: undefined; object?: undefined };

async function damagesOf(
  deps: ReadBackDeps,
  archive: Archive,
  onRead: (bytes: number) => Promise<void>,
): Promise<Found[]> {
  const contents = archive.contents?.toString("hex") ?? "";
  try {
    const { store, secret, key, archiveId } = await placeOf(deps, archive);
    return await readBack({ store, secret }, { key, label: archiveId }, contents, { onRead });
  } catch (cause) {
    return [{ error: new Error(`it cannot be read: ${messageOf(cause)}`, { cause }) }];
  }
}

function textOf({ file, error }: Found): string {
  return file === undefined ? messageOf(error) : `${file}: ${messageOf(error)}`;
}

async function mend(deps: ReadBackDeps, archive: Archive, damages: Found[]): Promise<void> {
  const { db } = deps;
  const bad = damages.flatMap((damage) =>
    damage.object !== undefined && OF_THE_OBJECT.has(damage.error.reason) ? [damage.object] : [],
  );
  const space = await findSpace(db, archive.space_id);
  if (bad.length === 0 || !space) return;
  // Something may be packed into the space: then the next check mends it.
  const held = await db.transaction().execute((tx) => leaseSpace(tx, space.id, LEASE_MS));
  if (!held) return;
  try {
    for (const name of new Set(bad)) await storeOf(deps, space).delete(prefixOf(space) + name);
    await packAgain(db, archive.id);
  } finally {
    await releaseSpace(db, space.id, held);
  }
}

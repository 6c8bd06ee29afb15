/** Where an archive's objects are, with what opens them. */
import { ChunksInObjects } from "@vivarium/archive/chunk-store";
import type { ObjectStore } from "@vivarium/objects/store";
import type { Queries } from "../db/pool.ts";
import { openDataKey } from "../secrets/data-key.ts";
import type { Keyring } from "../secrets/keyring.ts";
import { type Archive, findSpace, type SpaceRow } from "./store.ts";

/** Where objects of archives are. Both may be the same store. */
export interface ArchiveStores {
  objects: ObjectStore;
  localObjects: ObjectStore;
}

export interface PlaceDeps extends ArchiveStores {
  db: Queries;
  keyring: Keyring;
}

interface Place {
  archiveId: string;
  key: Buffer;
  secret: Buffer;
  store: ChunksInObjects;
}

/** The objects of a space are below it. */
export const prefixOf = ({ org_id: org, id }: Pick<SpaceRow, "org_id" | "id">) => `${org}/archives/${id}/`;

/** The store that has the objects of a space. */
export const storeOf = (stores: ArchiveStores, space: Pick<SpaceRow, "is_local">): ObjectStore =>
  space.is_local ? stores.localObjects : stores.objects;

/** Whether the object with the archive's contents is there: a directory may be another one now, or not be mounted. */
export async function hasContents(deps: ArchiveStores & { db: Queries }, archive: Archive): Promise<boolean> {
  const space = await findSpace(deps.db, archive.space_id);
  if (!space || !archive.contents) return false;
  const key = prefixOf(space) + archive.contents.toString("hex");
  return (await storeOf(deps, space).head(key)) !== undefined;
}

export async function placeOf(deps: PlaceDeps, archive: Archive): Promise<Place> {
  const { db, keyring } = deps;
  const space = await findSpace(db, archive.space_id);
  if (!space) throw new Error(`the space of the archive ${archive.id} is gone`);
  return {
    archiveId: archive.id,
    key: await openDataKey(keyring, archive),
    secret: await openDataKey(keyring, space),
    store: new ChunksInObjects(storeOf(deps, space), prefixOf(space)),
  };
}

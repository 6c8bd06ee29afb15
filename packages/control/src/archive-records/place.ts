/** Where an archive's objects are, with what opens them. */
import { ChunksInObjects } from "@vivarium/archive/chunk-store";
import type { ObjectStore } from "@vivarium/objects/store";
import type { Queries } from "../db/pool.ts";
import { openDataKey } from "../secrets/data-key.ts";
import type { Keyring } from "../secrets/keyring.ts";
import { type Archive, findSpace, type SpaceRow } from "./store.ts";

export interface PlaceDeps {
  db: Queries;
  objects: ObjectStore;
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

export async function placeOf({ db, objects, keyring }: PlaceDeps, archive: Archive): Promise<Place> {
  const space = await findSpace(db, archive.space_id);
  if (!space) throw new Error(`the space of the archive ${archive.id} is gone`);
  return {
    archiveId: archive.id,
    key: await openDataKey(keyring, archive),
    secret: await openDataKey(keyring, space),
    store: new ChunksInObjects(objects, prefixOf(space)),
  };
}

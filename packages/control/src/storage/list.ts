/** Lists what the rows of all organisations say is stored, artifacts and archives with the bytes of their objects. */
import type { ObjectStore } from "@vivarium/objects/store";
import type { Queries } from "../db/pool.ts";
import { listStored, type Stored } from "./store.ts";

export interface StoredThing extends Stored {
  /** Bytes of the objects of an artifact, or of archives that share chunks. */
  stored_bytes?: number;
}

export interface StoredThings {
  things: StoredThing[];
  /** Bytes of objects that no row names. They are removed after a day. */
  unnamed_bytes: number;
}

export async function listThings(
  db: Queries,
  stores: Iterable<Pick<ObjectStore, "list">>,
): Promise<StoredThings> {
  const things: StoredThing[] = await listStored(db);
  const artifacts = new Map(things.filter(({ kind }) => kind === "artifact").map((one) => [one.id, one]));
  for (const artifact of artifacts.values()) artifact.stored_bytes = 0;
  let unnamed = 0;
  const archives = new Map(things.filter(({ kind }) => kind === "archive").map((one) => [one.id, one]));
  for (const archive of archives.values()) archive.stored_bytes = 0;
  for (const objects of stores)
    for await (const { key, sizeBytes } of objects.list("")) {
      const id = key.split("/")[2] ?? "";
      const artifact = artifacts.get(id) ?? archives.get(id);
      if (artifact) artifact.stored_bytes = (artifact.stored_bytes ?? 0) + sizeBytes;
      else unnamed += sizeBytes;
    }
  return { things, unnamed_bytes: unnamed };
}

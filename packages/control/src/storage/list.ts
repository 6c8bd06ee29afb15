/** Lists what the rows of all organisations say is stored, artifacts with the bytes of their objects. */
import type { ObjectStore } from "@vivarium/objects/store";
import type { Queries } from "../db/pool.ts";
import { listStored, type Stored } from "./store.ts";

export interface StoredThing extends Stored {
  /** Bytes of an artifact's objects. */
  stored_bytes?: number;
}

export interface StoredThings {
  things: StoredThing[];
  /** Bytes of objects that no row names. They are removed after a day. */
  unnamed_bytes: number;
}

export async function listThings(db: Queries, objects: Pick<ObjectStore, "list">): Promise<StoredThings> {
  const things: StoredThing[] = await listStored(db);
  const artifacts = new Map(things.filter(({ kind }) => kind === "artifact").map((one) => [one.id, one]));
  for (const artifact of artifacts.values()) artifact.stored_bytes = 0;
  let unnamed = 0;
  for await (const { key, sizeBytes } of objects.list("")) {
    const artifact = artifacts.get(key.split("/")[2] ?? "");
    if (artifact) artifact.stored_bytes = (artifact.stored_bytes ?? 0) + sizeBytes;
    else unnamed += sizeBytes;
  }
  return { things, unnamed_bytes: unnamed };
}

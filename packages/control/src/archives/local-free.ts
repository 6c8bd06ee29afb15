/** How much the file system of the warm tier has left, which is that of the database, too, unless the operator chose another. */

import { GIB } from "@vivarium/kit/sizes";
import { DirectoryStore } from "@vivarium/objects/directory-store";
import type { ArchiveStores } from "../archive-records/place.ts";

/** With less, nothing is packed: the first state takes its baseline along, which is about 250 MiB. */
export const LEAST_FREE_BYTES = GIB;

export const hasLocalSpace = (free: number): boolean => free >= LEAST_FREE_BYTES;

/** Free bytes; 0 if there is no directory. */
export async function readLocalFree({ localObjects }: Pick<ArchiveStores, "localObjects">): Promise<number> {
  return localObjects instanceof DirectoryStore ? await localObjects.freeBytes() : 0;
}

/** Opens the object store that the settings name. */
import { existsSync } from "node:fs";
import { DirectoryStore } from "@vivarium/objects/directory-store";
import type { S3Settings } from "@vivarium/objects/s3-settings";
import type { ObjectStore } from "@vivarium/objects/store";

/** A directory of this host, or a bucket. */
export type ObjectSettings = { dir: string } | { s3: S3Settings };

/**
 * The store of the warm tier: the object store itself, or beside a bucket the directory that was the object store before, if it
 * is there. Nothing new is packed into that.
 */
export async function openLocalObjects(objects: ObjectStore, dir: string | undefined): Promise<ObjectStore> {
  const isBeside = !(objects instanceof DirectoryStore) && dir !== undefined && existsSync(dir);
  return isBeside ? await DirectoryStore.open(dir) : objects;
}

export async function openObjects(settings: ObjectSettings): Promise<ObjectStore> {
  if ("dir" in settings) return await DirectoryStore.open(settings.dir);
  // The client of S3 takes memory, and time at the start, of a service that uses it alone.
  const { S3Store } = await import("@vivarium/objects/s3-store");
  return new S3Store(settings.s3);
}

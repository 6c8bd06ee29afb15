/** Opens the object store that the settings name. */
import { DirectoryStore } from "@vivarium/objects/directory-store";
import type { ObjectStore } from "@vivarium/objects/store";

export interface ObjectSettings {
  /** Directory of a store on this host. */
  dir: string;
}

export async function openObjects({ dir }: ObjectSettings): Promise<ObjectStore> {
  return await DirectoryStore.open(dir);
}

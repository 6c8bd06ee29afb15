import { newDataKey, openDataKey } from "../secrets/data-key.ts";
import type { Keyring } from "../secrets/keyring.ts";
import type { ArtifactDeps } from "./deps.ts";
import type { Place } from "./pieces.ts";
import { type ArtifactRow, findArtifactById, saveKey } from "./store.ts";

/** The place of an artifact's objects. */
export async function placeOf(
  { objects, keyring }: { objects: Place["objects"]; keyring: Keyring },
  { org_id, id, kek_id, data_key }: ArtifactRow,
): Promise<Place> {
  const owner = { org_id, id };
  const isSealed = kek_id !== null && data_key !== null;
  return {
    objects,
    owner,
    key: isSealed ? await openDataKey(keyring, { ...owner, kek_id, data_key }) : undefined,
  };
}

/** Gives an artifact without files its key, where this service can seal. */
export async function placeOfNew(deps: ArtifactDeps, artifact: ArtifactRow): Promise<Place> {
  const kek = deps.keyring.current;
  if (artifact.data_key !== null || !kek) return await placeOf(deps, artifact);
  await saveKey(deps.db, artifact.id, newDataKey(kek, artifact).wrapped);
  return await placeOf(deps, (await findArtifactById(deps.db, artifact.id)) ?? artifact);
}

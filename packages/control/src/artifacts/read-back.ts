/** Reads the objects of artifacts back against their sums, for a check of everything that is stored. */
import { messageOf } from "@vivarium/kit/unknown-error";
import type { ArtifactDeps } from "./deps.ts";
import { namesIn, type Place, readPiece } from "./pieces.ts";
import { placeOf } from "./place.ts";
import { type ArtifactRow, isThere, listPieces, listWithFiles } from "./store.ts";

type ReadBackDeps = Pick<ArtifactDeps, "db" | "objects" | "keyring">;

export interface ReadBack {
  id: string;
  /** Bytes of its files. */
  bytes: number;
  damages: string[];
}

/** `onRead`: called with the bytes of each piece, before the next one is read. */
export async function* readBackArtifacts(
  deps: ReadBackDeps,
  onRead: (bytes: number) => Promise<void>,
): AsyncGenerator<ReadBack> {
  for (let after = 0; ; ) {
    const page = await listWithFiles(deps.db, after);
    for (const artifact of page) {
      const found = await readBack(deps, artifact, onRead);
      // An artifact that was deleted meanwhile is not damaged.
      if (found.damages.length === 0 || (await isThere(deps.db, artifact.id))) yield found;
      after = artifact.seq;
    }
    if (page.length === 0) return;
  }
}

async function readBack(
  deps: ReadBackDeps,
  artifact: ArtifactRow,
  onRead: (bytes: number) => Promise<void>,
): Promise<ReadBack> {
  const { id } = artifact;
  const files = await listPieces(deps.db, id);
  const bytes = files.reduce((sum, file) => sum + file.size_bytes, 0);
  let place: Place;
  try {
    place = await placeOf(deps, artifact);
  } catch (error) {
    return { id, bytes, damages: [`it cannot be opened: ${messageOf(error)}`] };
  }
  const damages: string[] = [];
  const known = new Map<string, string | undefined>();
  for (const { path, pieces } of files) {
    let damage: string | undefined;
    for (const name of namesIn(pieces)) {
      const key = name.toString("hex");
      if (!known.has(key)) known.set(key, await damageOf(place, name, onRead));
      damage ??= known.get(key);
    }
    if (damage !== undefined) damages.push(`${path}: ${damage}`);
  }
  return { id, bytes, damages };
}

async function damageOf(
  place: Place,
  name: Buffer,
  onRead: (bytes: number) => Promise<void>,
): Promise<string | undefined> {
  try {
    const piece = await readPiece(place, name);
    await onRead(piece.length);
    return undefined;
  } catch (error) {
    return messageOf(error);
  }
}

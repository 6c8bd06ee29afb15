/** Reads one file of an artifact through its signed link. */
import { ApiError } from "../errors/api-error.ts";
import type { ArtifactDeps } from "./deps.ts";
import { isLinkValid } from "./links.ts";
import { namesIn, PIECE_BYTES, type Place, readPiece } from "./pieces.ts";
import { placeOf } from "./place.ts";
import { type ArtifactFileRow, findArtifactById, findFile } from "./store.ts";

export interface Link {
  artifactId: string;
  position: number;
  until: number;
  signature: string;
}

export interface StoredFile {
  file: ArtifactFileRow;
  /** Bytes `first` to `last`, both included. Fails if they are not those that were captured. */
  read(first: number, last: number, signal: AbortSignal): AsyncGenerator<Buffer>;
}

export async function openLink(
  deps: Pick<ArtifactDeps, "db" | "objects" | "keyring" | "linkKey">,
  link: Link,
): Promise<StoredFile> {
  if (!isLinkValid(deps.linkKey, link))
    throw new ApiError(
      "forbidden",
      "this link is not valid, or not any more: read the artifact again for a new one",
    );
  const artifact = await findArtifactById(deps.db, link.artifactId);
  const file = artifact?.state === "ready" ? await findFile(deps.db, artifact.id, link.position) : undefined;
  if (!artifact || !file) throw new ApiError("not_found", "the artifact has expired or was deleted");
  const place = await placeOf(deps, artifact);
  return { file, read: (first, last, signal) => readBytes(place, file, { first, last }, signal) };
}

async function* readBytes(
  place: Place,
  { pieces }: ArtifactFileRow,
  { first, last }: { first: number; last: number },
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  const names = namesIn(pieces);
  for (let n = Math.floor(first / PIECE_BYTES); n * PIECE_BYTES <= last; n++) {
    const name = names[n];
    if (!name) throw new Error(`${place.owner.id} has a file with too few pieces`);
    const start = n * PIECE_BYTES;
    const piece = await readPiece(place, name, signal);
    yield piece.subarray(Math.max(0, first - start), last + 1 - start);
  }
}

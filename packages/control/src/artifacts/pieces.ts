/**
 * The form of a file in the object store: pieces of at most 4 MiB, each an object `<organisation>/artifacts/<artifact>/<name>`.
 * A name is a sum of the piece's content, under the artifact's key where there is one, so that a capture that is repeated
 * stores nothing twice, and names say nothing about contents. An object is one byte that says its form, then the content
 * as it is or compressed (zstd); with a key, all of it is sealed for this artifact and name.
 */
import { createHash, createHmac } from "node:crypto";
import { promisify } from "node:util";
import { zstdCompress, zstdDecompress } from "node:zlib";
import { MIB } from "@vivarium/kit/sizes";
import { type ObjectStore, readWhole } from "@vivarium/objects/store";
import { type Owner, openFor, sealFor } from "../secrets/data-key.ts";

export const PIECE_BYTES = 4 * MIB;
const NAME_BYTES = 32;
const PLAIN = 0;
const COMPRESSED = 1;
const compress = promisify(zstdCompress);
const decompress = promisify(zstdDecompress);

/** The place of an artifact's objects, and the key that seals them; undefined: there is none. */
export interface Place {
  objects: ObjectStore;
  owner: Owner;
  key: Buffer | undefined;
}

export const prefixOf = ({ org_id: org, id }: Owner) => `${org}/artifacts/${id}/`;

/** Stores a piece, unless it is there. Returns its name. */
export async function storePiece(place: Place, content: Buffer, signal: AbortSignal): Promise<Buffer> {
  const name = nameOf(place, content);
  const key = keyOf(place, name);
  if (await place.objects.head(key)) return name;
  const packed = await pack(content);
  const bytes = place.key ? sealFor(place.key, place.owner, contextOf(name), packed) : packed;
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  await place.objects.put(key, bytes, { ifAbsent: true, sizeBytes: bytes.length, sha256, signal });
  return name;
}

/** Throws if the object is gone, or is not the one that was stored. */
export async function readPiece(place: Place, name: Buffer, signal?: AbortSignal): Promise<Buffer> {
  const fetched = await place.objects.get(keyOf(place, name), { signal });
  if (!fetched) throw new Error(`a piece of ${place.owner.id} is gone from the object store`);
  const bytes = await readWhole(fetched);
  const content = await unpack(place.key ? openFor(place.key, place.owner, contextOf(name), bytes) : bytes);
  if (!nameOf(place, content).equals(name)) throw new Error(`a piece of ${place.owner.id} was changed`);
  return content;
}

/** The names of a file's pieces, in order. */
export function namesIn(pieces: Buffer): Buffer[] {
  const count = pieces.length / NAME_BYTES;
  return Array.from({ length: count }, (_, n) => pieces.subarray(n * NAME_BYTES, (n + 1) * NAME_BYTES));
}

/** Cuts a stream into pieces: all but the last are full. */
export async function* cutIntoPieces(content: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let kept: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of content) {
    kept.push(chunk);
    bytes += chunk.length;
    if (bytes < PIECE_BYTES) continue;
    const whole = Buffer.concat(kept);
    let at = 0;
    for (; whole.length - at >= PIECE_BYTES; at += PIECE_BYTES) yield whole.subarray(at, at + PIECE_BYTES);
    kept = [Buffer.from(whole.subarray(at))];
    bytes = whole.length - at;
  }
  if (bytes > 0) yield Buffer.concat(kept);
}

async function pack(content: Buffer): Promise<Buffer> {
  const compressed = await compress(content);
  return compressed.length < content.length
    ? Buffer.concat([Buffer.from([COMPRESSED]), compressed])
    : Buffer.concat([Buffer.from([PLAIN]), content]);
}

async function unpack(packed: Buffer): Promise<Buffer> {
  const content = packed.subarray(1);
  if (packed[0] === PLAIN) return content;
  if (packed[0] === COMPRESSED) return await decompress(content, { maxOutputLength: PIECE_BYTES });
  throw new Error("an object is not in a form that this release knows");
}

function nameOf({ key }: Place, content: Buffer): Buffer {
  if (!key) return createHash("sha256").update(content).digest();
  const naming = createHmac("sha256", key).update("names of pieces").digest();
  return createHmac("sha256", naming).update(content).digest();
}

const keyOf = ({ owner }: Place, name: Buffer) => prefixOf(owner) + name.toString("hex");
const contextOf = (name: Buffer) => `piece|${name.toString("hex")}`;

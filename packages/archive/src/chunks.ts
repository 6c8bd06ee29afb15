/**
 * Chunks: contents that are stored once in a space. A space has a secret, from which the name of a chunk and the key that seals
 * it follow, together with the digest of its content. So the store learns nothing of contents from names, and nobody
 * opens a chunk by the secret alone: its digest is in the archives that have it.
 */
import { createHash, createHmac, hkdfSync } from "node:crypto";
import type { ChunkStore } from "./chunk-store.ts";
import { fromObject, objectBytes, toObject } from "./envelope.ts";
import { UnusableArchive } from "./unusable-archive.ts";

export const DIGEST_BYTES = 32;
export const SECRET_BYTES = 32;

export const digestOf = (content: Uint8Array): Buffer => createHash("sha256").update(content).digest();

export class SpaceSecret {
  readonly #names: Buffer;
  readonly #keys: Buffer;

  constructor(secret: Uint8Array) {
    if (secret.length !== SECRET_BYTES) throw new Error("the secret of a space has another length");
    this.#names = derived(secret, "names of chunks");
    this.#keys = derived(secret, "keys of chunks");
  }

  nameOf(digest: Uint8Array): string {
    return createHmac("sha256", this.#names).update(digest).digest("hex");
  }

  keyOf(digest: Uint8Array): Buffer {
    return createHmac("sha256", this.#keys).update(digest).digest();
  }
}

/** The object of a chunk. */
export async function sealChunk(secret: SpaceSecret, digest: Buffer, content: Buffer): Promise<Buffer> {
  return await toObject({ key: secret.keyOf(digest), name: secret.nameOf(digest) }, content);
}

/** The content with this digest. Throws UnusableArchive if the store gives anything else. */
export async function fetchChunk(
  { store, secret }: { store: ChunkStore; secret: SpaceSecret },
  digest: Buffer,
  mostBytes: number,
  signal?: AbortSignal,
): Promise<Buffer> {
  const name = secret.nameOf(digest);
  const what = `the object ${name}`;
  const object = await store.get(name, objectBytes(mostBytes), signal);
  const content = await fromObject({ key: secret.keyOf(digest), name }, object, { what, mostBytes });
  if (!digestOf(content).equals(digest))
    throw new UnusableArchive("altered", `${what} has another content than was put under its name`);
  return content;
}

const derived = (secret: Uint8Array, purpose: string) =>
  Buffer.from(hkdfSync("sha256", secret, "", `vivarium archive: ${purpose}`, SECRET_BYTES));

/** A place for chunks: objects with names of 64 hexadecimal digits below one prefix of an object store. */
import { createHash } from "node:crypto";
import type { Fetched, ObjectStore } from "@vivarium/objects/store";
import { UnusableArchive } from "./unusable-archive.ts";

const NAME = /^[0-9a-f]{64}$/;

export interface ChunkStore {
  /** Names of all chunks that are there, whole. */
  names(): AsyncIterable<string>;
  /** A chunk that is there stays as it is. Durable once this returns. */
  put(name: string, bytes: Uint8Array, signal?: AbortSignal): Promise<void>;
  /** Throws UnusableArchive if there is no such chunk, or if it has more bytes than `mostBytes`, which it does not read. */
  get(name: string, mostBytes: number, signal?: AbortSignal): Promise<Buffer>;
}

export class ChunksInObjects implements ChunkStore {
  readonly #objects: Pick<ObjectStore, "get" | "list" | "put">;
  readonly #prefix: string;

  /** `prefix`: ends with a slash. */
  constructor(objects: Pick<ObjectStore, "get" | "list" | "put">, prefix: string) {
    this.#objects = objects;
    this.#prefix = prefix;
  }

  async *names(): AsyncGenerator<string> {
    for await (const { key } of this.#objects.list(this.#prefix)) {
      const name = key.slice(this.#prefix.length);
      if (NAME.test(name)) yield name;
    }
  }

  async put(name: string, bytes: Uint8Array, signal?: AbortSignal): Promise<void> {
    const sha256 = createHash("sha256").update(bytes).digest("hex");
    await this.#objects.put(this.#prefix + name, bytes, {
      ifAbsent: true,
      sizeBytes: bytes.length,
      sha256,
      ...(signal && { signal }),
    });
  }

  async get(name: string, mostBytes: number, signal?: AbortSignal): Promise<Buffer> {
    try {
      signal?.throwIfAborted();
      const fetched = await this.#objects.get(this.#prefix + name, signal && { signal });
      if (!fetched) throw new UnusableArchive("missing", `the store has no object ${name}`);
      return await readAtMost(fetched, mostBytes, name);
    } catch (error) {
      // Not every store fails with the reason.
      signal?.throwIfAborted();
      throw error;
    }
  }
}

async function readAtMost({ content, sizeBytes }: Fetched, mostBytes: number, name: string): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  for await (const piece of content) {
    pieces.push(piece);
    bytes += piece.length;
    // Leaving the loop ends the reading.
    if (Math.max(bytes, sizeBytes) > mostBytes)
      throw new UnusableArchive("too_long", `the object ${name} has more than ${mostBytes} bytes`);
  }
  return Buffer.concat(pieces);
}

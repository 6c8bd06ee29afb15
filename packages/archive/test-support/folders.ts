/** Folders with sparse files for tests, and stores to pack them into. */
import { createHash, randomBytes } from "node:crypto";
import { createReadStream, mkdtempSync, rmSync } from "node:fs";
import { mkdir, open, readdir, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { DirectoryStore } from "@vivarium/objects/directory-store";
import { type ChunkStore, ChunksInObjects } from "../src/chunk-store.ts";

export const BLOCK = 4096;
export const WINDOW = 1024 * 1024;

/** A file with bytes at some places, and holes elsewhere. */
export interface SparseFile {
  bytes: number;
  parts?: readonly { at: number; content: Uint8Array }[];
}

export async function writeFolder(dir: string, files: Record<string, SparseFile>): Promise<void> {
  await mkdir(dir);
  for (const [name, { bytes, parts = [] }] of Object.entries(files)) {
    await using handle = await open(path.join(dir, name), "wx", 0o640);
    await handle.truncate(bytes);
    for (const { at, content } of parts) await handle.write(content, 0, content.length, at);
  }
}

/** Names, modes, sizes and sums of the contents. */
export async function readFolder(dir: string) {
  const names = (await readdir(dir)).toSorted();
  const files = names.map(async (name) => {
    const file = path.join(dir, name);
    const { mode, size } = await stat(file);
    const hash = createHash("sha256");
    for await (const piece of createReadStream(file)) hash.update(piece);
    return [name, { mode: mode & 0o777, size, sum: hash.digest("hex") }] as const;
  });
  return Object.fromEntries(await Promise.all(files));
}

/** Bytes that a file takes on its disk. */
export const takenBytes = async (file: string) => (await stat(file)).blocks * 512;

/** A store that does to chunks what a test says, and counts what it is asked. */
export class WatchedStore implements ChunkStore {
  readonly #store: ChunkStore;
  readonly puts: string[] = [];
  /** Most calls that ran at once. */
  mostPuts = 0;
  mostGets = 0;
  #puts = 0;
  #gets = 0;
  onPut: (name: string, bytes: Uint8Array) => Promise<void> | void = () => undefined;
  /** Changes what is read. */
  changed: (name: string, bytes: Buffer) => Promise<Buffer> | Buffer = (_name, bytes) => bytes;

  constructor(store: ChunkStore) {
    this.#store = store;
  }

  names(): AsyncIterable<string> {
    return this.#store.names();
  }

  async put(name: string, bytes: Uint8Array, signal?: AbortSignal): Promise<void> {
    this.mostPuts = Math.max(this.mostPuts, ++this.#puts);
    try {
      await this.onPut(name, bytes);
      await this.#store.put(name, bytes, signal);
      this.puts.push(name);
    } finally {
      this.#puts--;
    }
  }

  async get(name: string, mostBytes: number, signal?: AbortSignal): Promise<Buffer> {
    this.mostGets = Math.max(this.mostGets, ++this.#gets);
    try {
      return await this.changed(name, await this.#store.get(name, mostBytes, signal));
    } finally {
      this.#gets--;
    }
  }
}

/** A directory of a test with a store in it. */
export class Place implements Disposable {
  readonly dir = mkdtempSync(path.join(tmpdir(), "archive-"));
  readonly secret = randomBytes(32);
  readonly objects = DirectoryStore.open(path.join(this.dir, "objects"));
  #count = 0;

  /** A path that is not there. */
  path(): string {
    return path.join(this.dir, `f${++this.#count}`);
  }

  async folder(files: Record<string, SparseFile>): Promise<string> {
    const dir = this.path();
    await writeFolder(dir, files);
    return dir;
  }

  async store(prefix = "o/a/"): Promise<WatchedStore> {
    return new WatchedStore(new ChunksInObjects(await this.objects, prefix));
  }

  [Symbol.dispose](): void {
    rmSync(this.dir, { recursive: true });
  }
}

export const newKey = (label = "a1") => ({ key: randomBytes(32), label });

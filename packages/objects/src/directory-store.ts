/**
 * A store in a directory of one host:
 *
 *   objects/<key>@              an object; no name of a key's part ends so, hence an object never is in another's way
 *   incoming/<random>           an object that is being written
 *   uploads/<id>/<number>       the parts of an upload
 *
 * An object appears by the rename, or link, of a file whose bytes are durable.
 */
import { randomBytes } from "node:crypto";
import { createReadStream } from "node:fs";
import { link, mkdir, open, readdir, rename, rm, rmdir, stat, statfs } from "node:fs/promises";
import path from "node:path";
import { crashPoint } from "@vivarium/kit/crash-point";
import { syncPath } from "@vivarium/kit/durable-file";
import { ifThere } from "@vivarium/kit/if-there";
import { hasCode } from "@vivarium/kit/unknown-error";
import { CheckedBody } from "./checked-body.ts";
import {
  type Body,
  type Fetched,
  type ObjectInfo,
  type ObjectStore,
  type Part,
  type PutOptions,
  type Range,
  requireKey,
  type Stored,
  type Upload,
  UploadGone,
} from "./store.ts";

const FILE_MODE = 0o600;
const DIR_MODE = 0o700;
const END = "@";
const UPLOAD_ID = /^[0-9a-f]{32}$/;
const ATTEMPTS = 5;

export class DirectoryStore implements ObjectStore {
  readonly #objects: string;
  readonly #incoming: string;
  readonly #uploads: string;

  private constructor(dir: string) {
    this.#objects = path.join(dir, "objects");
    this.#incoming = path.join(dir, "incoming");
    this.#uploads = path.join(dir, "uploads");
  }

  static async open(dir: string): Promise<DirectoryStore> {
    const store = new DirectoryStore(dir);
    for (const folder of [store.#objects, store.#incoming, store.#uploads])
      await mkdir(folder, { recursive: true, mode: DIR_MODE });
    await syncPath(dir);
    return store;
  }

  /** Free bytes of the directory's file system. */
  async freeBytes(): Promise<number> {
    const { bavail, bsize } = await statfs(this.#objects);
    return bavail * bsize;
  }

  async put(key: string, body: Body, options: PutOptions = {}): Promise<Stored> {
    requireKey(key);
    const checked = new CheckedBody(body, options);
    const partial = path.join(this.#incoming, randomBytes(16).toString("hex"));
    try {
      await writeAll(partial, checked.pieces());
      crashPoint("object.written");
      const isNew = await this.#publish(partial, key, options);
      return { sizeBytes: checked.sizeBytes, sha256: checked.sha256, isNew };
    } finally {
      await rm(partial, { force: true });
    }
  }

  async get(
    key: string,
    { range, signal }: { range?: Range; signal?: AbortSignal } = {},
  ): Promise<Fetched | undefined> {
    const handle = await ifThere(open(this.#fileOf(key), "r"));
    if (!handle) return undefined;
    const { size } = await handle.stat();
    const { first, last } = range ?? { first: 0, last: size - 1 };
    if (range && (first > last || last >= size)) {
      await handle.close();
      throw new RangeError(`the object ${key} has no bytes ${first} to ${last}: it has ${size}`);
    }
    if (size === 0) {
      await handle.close();
      return { sizeBytes: 0, content: (async function* () {})() };
    }
    return {
      sizeBytes: size,
      content: createReadStream("", { fd: handle, start: first, end: last, signal }),
    };
  }

  async head(key: string): Promise<ObjectInfo | undefined> {
    const found = await ifThere(stat(this.#fileOf(key)));
    return found && { key, sizeBytes: found.size, modifiedAt: found.mtime };
  }

  async *list(prefix: string): AsyncGenerator<ObjectInfo> {
    const folder = prefix.slice(0, prefix.lastIndexOf("/") + 1);
    if (folder !== "") requireKey(folder.slice(0, -1));
    for await (const key of keysBelow(path.join(this.#objects, folder), folder)) {
      if (!key.startsWith(prefix)) continue;
      const info = await this.head(key);
      if (info) yield info;
    }
  }

  async delete(key: string): Promise<void> {
    const file = this.#fileOf(key);
    await rm(file, { force: true });
    await this.#removeEmpty(path.dirname(file));
  }

  async beginUpload(key: string): Promise<Upload> {
    requireKey(key);
    const id = randomBytes(16).toString("hex");
    await mkdir(path.join(this.#uploads, id), { mode: DIR_MODE });
    await syncPath(this.#uploads);
    return { key, id };
  }

  async putPart(upload: Upload, number: number, bytes: Uint8Array): Promise<void> {
    const folder = this.#folderOf(upload);
    const partial = path.join(this.#incoming, randomBytes(16).toString("hex"));
    try {
      await writeAll(partial, [bytes]);
      await rename(partial, path.join(folder, String(number)));
      await syncPath(folder);
    } finally {
      await rm(partial, { force: true });
    }
  }

  async listParts(upload: Upload): Promise<Part[]> {
    const folder = this.#folderOf(upload);
    const names = (await ifThere(readdir(folder))) ?? [];
    const numbers = names.map(Number).sort((one, other) => one - other);
    return await Promise.all(
      numbers.map(async (number) => ({
        number,
        sizeBytes: (await stat(path.join(folder, String(number)))).size,
      })),
    );
  }

  async completeUpload(upload: Upload): Promise<void> {
    const folder = this.#folderOf(upload);
    const parts = await this.listParts(upload);
    if (parts.length === 0) throw new UploadGone(upload.key);
    await this.put(upload.key, contentOf(parts.map(({ number }) => path.join(folder, String(number)))));
    await this.abortUpload(upload);
  }

  async abortUpload(upload: Upload): Promise<void> {
    await rm(this.#folderOf(upload), { recursive: true, force: true });
  }

  async removeUnfinished(graceMs: number): Promise<void> {
    for (const name of await readdir(this.#incoming)) {
      const partial = path.join(this.#incoming, name);
      const found = await ifThere(stat(partial));
      if (found && Date.now() - found.mtimeMs >= graceMs) await rm(partial, { force: true });
    }
  }

  async close(): Promise<void> {}

  #fileOf(key: string): string {
    requireKey(key);
    return path.join(this.#objects, key + END);
  }

  #folderOf({ id }: Upload): string {
    if (!UPLOAD_ID.test(id)) throw new Error("no id of an upload");
    return path.join(this.#uploads, id);
  }

  /** False if `ifAbsent` found an object. Race: a delete may remove the directory between its making and the rename. */
  async #publish(partial: string, key: string, { ifAbsent }: PutOptions): Promise<boolean> {
    const file = this.#fileOf(key);
    for (let attempt = 1; ; attempt++) {
      try {
        await this.#makeFolder(path.dirname(file));
        await (ifAbsent ? link(partial, file) : rename(partial, file));
        await syncPath(path.dirname(file));
        return true;
      } catch (error) {
        if (ifAbsent && hasCode(error, "EEXIST")) return false;
        if (!hasCode(error, "ENOENT") || attempt === ATTEMPTS) throw error;
      }
    }
  }

  /** A directory that another call made at the same time may not be durable yet, so all parents are synced. */
  async #makeFolder(folder: string): Promise<void> {
    const first = await mkdir(folder, { recursive: true, mode: DIR_MODE });
    if (first === undefined) return;
    for (let at = folder; at.length >= this.#objects.length; at = path.dirname(at)) await syncPath(at);
  }

  async #removeEmpty(folder: string): Promise<void> {
    for (let at = folder; at.length > this.#objects.length; at = path.dirname(at)) {
      try {
        await rmdir(at);
      } catch {
        return;
      }
    }
  }
}

async function writeAll(
  file: string,
  pieces: Iterable<Uint8Array> | AsyncIterable<Uint8Array>,
): Promise<void> {
  const handle = await open(file, "wx", FILE_MODE);
  try {
    for await (const piece of pieces) await handle.writeFile(piece);
    await handle.sync();
  } finally {
    await handle.close();
  }
}

async function* contentOf(files: readonly string[]): AsyncGenerator<Uint8Array> {
  for (const file of files) yield* createReadStream(file);
}

/** In byte order of the whole keys. */
async function* keysBelow(folder: string, prefix: string): AsyncGenerator<string> {
  const entries = (await ifThere(readdir(folder, { withFileTypes: true }))) ?? [];
  // A directory sorts with the slash that follows its name in a key.
  const own = entries.filter((entry) => entry.isDirectory() || entry.name.endsWith(END));
  const named = own.map((entry) => ({
    entry,
    key: entry.isDirectory() ? `${entry.name}/` : entry.name.slice(0, -END.length),
  }));
  named.sort((one, other) => (one.key < other.key ? -1 : 1));
  for (const { entry, key } of named) {
    if (entry.isDirectory()) yield* keysBelow(path.join(folder, entry.name), prefix + key);
    else yield prefix + key;
  }
}

/** A file that grows until it has the content of a digest. A later process continues one that was left unfinished. */
import type { Hash } from "node:crypto";
import { constants } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { digestOf, hashFor } from "./digest.ts";

/** No link is followed, should one have been put there. */
const FLAGS = constants.O_RDWR | constants.O_CREAT | constants.O_APPEND | constants.O_NOFOLLOW;

export class PartialFile {
  readonly #handle: FileHandle;
  readonly #digest: string;
  #hash: Hash;
  #size = 0;

  /** Hashes what is there already. */
  static async open(path: string, digest: string): Promise<PartialFile> {
    const file = new PartialFile(await open(path, FLAGS, 0o600), digest);
    try {
      await file.#readKept();
      return file;
    } catch (error) {
      await file.close();
      throw error;
    }
  }

  private constructor(handle: FileHandle, digest: string) {
    this.#handle = handle;
    this.#digest = digest;
    this.#hash = hashFor(digest);
  }

  get size(): number {
    return this.#size;
  }

  /** Whether the content so far has the digest. */
  get isRight(): boolean {
    return digestOf(this.#hash.copy(), this.#digest) === this.#digest;
  }

  async append(chunk: Uint8Array): Promise<void> {
    await this.#handle.appendFile(chunk);
    this.#hash.update(chunk);
    this.#size += chunk.byteLength;
  }

  async startOver(): Promise<void> {
    await this.#handle.truncate(0);
    this.#hash = hashFor(this.#digest);
    this.#size = 0;
  }

  async sync(): Promise<void> {
    await this.#handle.sync();
  }

  async close(): Promise<void> {
    await this.#handle.close();
  }

  async #readKept(): Promise<void> {
    const kept = this.#handle.createReadStream({ start: 0, autoClose: false, highWaterMark: 1024 * 1024 });
    for await (const chunk of kept as AsyncIterable<Buffer>) {
      this.#hash.update(chunk);
      this.#size += chunk.byteLength;
    }
  }
}

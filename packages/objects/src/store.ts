/**
 * Stores of bytes by name. A name has either a whole object or none, whatever dies in between. An object that is
 * acknowledged is durable. Every implementation keeps one contract (`contract.ts` of the tests).
 */

/** Names begin with the owner's part, so that everything of one owner is below one prefix. */
const KEY = /^[A-Za-z0-9_-][A-Za-z0-9._-]*(\/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$/;
const MAX_KEY_CHARS = 512;
const MAX_PART_CHARS = 200;

export type Body = Uint8Array | AsyncIterable<Uint8Array>;

export interface ObjectInfo {
  key: string;
  sizeBytes: number;
  modifiedAt: Date;
}

export interface PutOptions {
  /** Size and sum (SHA-256, in hex) that the bytes must have; with others nothing is stored, and `ObjectMismatch` is thrown. */
  sizeBytes?: number;
  sha256?: string;
  /** An object of this name stays as it is. */
  ifAbsent?: boolean;
  signal?: AbortSignal;
}

export interface Stored {
  sizeBytes: number;
  sha256: string;
  /** False if `ifAbsent` found an object of this name, which may also be of an earlier attempt of the same call. */
  isNew: boolean;
}

/** Both ends are included, as in a request for a range. */
export interface Range {
  first: number;
  last: number;
}

export interface Fetched {
  /** Size of the whole object. */
  sizeBytes: number;
  /** Fails if it cannot be read to its end: a short answer never looks complete. */
  content: AsyncIterable<Uint8Array>;
}

/** An upload in parts, which another process can continue. */
export interface Upload {
  key: string;
  id: string;
}

export interface Part {
  number: number;
  sizeBytes: number;
}

export interface ObjectStore {
  put(key: string, body: Body, options?: PutOptions): Promise<Stored>;
  /** Undefined if there is no such object. */
  get(key: string, options?: { range?: Range; signal?: AbortSignal }): Promise<Fetched | undefined>;
  head(key: string): Promise<ObjectInfo | undefined>;
  /** Objects whose key begins with the prefix, in the order of their keys. */
  list(prefix: string): AsyncIterable<ObjectInfo>;
  /** Deleting an absent object succeeds. */
  delete(key: string): Promise<void>;
  beginUpload(key: string): Promise<Upload>;
  /** Numbers begin at 1. All parts but the last have at least 5 MiB. A part that is put again replaces the earlier one. */
  putPart(upload: Upload, number: number, bytes: Uint8Array): Promise<void>;
  /** In the order of their numbers; empty for an upload that is not known any more. */
  listParts(upload: Upload): Promise<Part[]>;
  /**
   * Makes the object of all parts, in the order of their numbers. Of an upload that is not known any more it makes nothing:
   * it succeeds if it can see that an earlier call has completed it, and fails with `UploadGone` otherwise.
   */
  completeUpload(upload: Upload): Promise<void>;
  abortUpload(upload: Upload): Promise<void>;
  /** Removes what puts of processes that died have left, once nothing was written to it for so long. */
  removeUnfinished(graceMs: number): Promise<void>;
  close(): Promise<void>;
}

/** The bytes are not those that were announced. Nothing was stored. */
export class ObjectMismatch extends Error {}

/** The upload was completed or given up before, or has no part. */
export class UploadGone extends Error {
  constructor(key: string) {
    super(`the upload of ${key} is not known any more, or has no part`);
  }
}

/** Throws for a name that a store does not take. */
export function requireKey(key: string): void {
  const isShort =
    key.length <= MAX_KEY_CHARS && key.split("/").every((part) => part.length <= MAX_PART_CHARS);
  if (!KEY.test(key) || !isShort)
    throw new Error(`no name of an object: ${JSON.stringify(key.slice(0, 100))}`);
}

/** The bytes of a body, one piece after the other. */
export async function* piecesOf(body: Body): AsyncGenerator<Uint8Array> {
  if (body instanceof Uint8Array) yield body;
  else yield* body;
}

export async function readWhole({ content }: Fetched): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  for await (const piece of content) pieces.push(piece);
  return Buffer.concat(pieces);
}

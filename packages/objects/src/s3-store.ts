/** A store in a bucket of S3, or of a server that speaks its protocol. */
import { CheckedBody } from "./checked-body.ts";
import { type BodyPart, inParts } from "./in-parts.ts";
import { ABSENT, newPutId, S3Bucket } from "./s3-bucket.ts";
import { unlessCode } from "./s3-calls.ts";
import { fetchObject } from "./s3-fetch.ts";
import type { S3Settings } from "./s3-settings.ts";
import { partBytesFor, S3Uploads } from "./s3-uploads.ts";
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
} from "./store.ts";

export class S3Store implements ObjectStore {
  readonly #bucket: S3Bucket;
  readonly #uploads: S3Uploads;

  constructor(settings: S3Settings) {
    this.#bucket = new S3Bucket(settings);
    this.#uploads = new S3Uploads(this.#bucket);
  }

  async put(key: string, body: Body, options: PutOptions = {}): Promise<Stored> {
    requireKey(key);
    const checked = new CheckedBody(body, options);
    const parts = inParts(checked.pieces(), partBytesFor(options.sizeBytes));
    try {
      const { value: first } = await parts.next();
      if (!first) throw new Error("a body has at least one part");
      const isNew = first.isLast
        ? await this.#putWhole(key, first.bytes, checked.sha256, options)
        : await this.#putInParts(key, joined(first, parts), options);
      return { sizeBytes: checked.sizeBytes, sha256: checked.sha256, isNew };
    } finally {
      await parts.return(undefined);
    }
  }

  async get(
    key: string,
    options: { range?: Range; signal?: AbortSignal } = {},
  ): Promise<Fetched | undefined> {
    return await fetchObject(this.#bucket, key, options);
  }

  async head(key: string): Promise<ObjectInfo | undefined> {
    const found = await this.#bucket.head(key);
    if (!found) return undefined;
    const { ContentLength: sizeBytes, LastModified: modifiedAt } = found;
    if (sizeBytes === undefined || !modifiedAt)
      throw this.#bucket.calls.wrongAnswer(`describe ${key}`, "no size or time came");
    return { key, sizeBytes, modifiedAt };
  }

  async *list(prefix: string): AsyncGenerator<ObjectInfo> {
    const folder = prefix.slice(0, prefix.lastIndexOf("/") + 1);
    if (folder !== "") requireKey(folder.slice(0, -1));
    const { calls, name: Bucket, prefix: own } = this.#bucket;
    const fixed = { Bucket, Prefix: own + prefix, MaxKeys: calls.limits.listPage };
    const what = `list ${prefix}`;
    let token: string | undefined;
    do {
      const page = await calls.ask(what, (s3, options) =>
        s3.listObjectsV2({ ...fixed, ContinuationToken: token }, options),
      );
      const {
        Contents: found = [],
        KeyCount: count,
        IsTruncated: hasMore,
        NextContinuationToken: next,
      } = page;
      // A document that was cut may still be read, as a shorter one.
      const isWhole =
        count === found.length && hasMore !== undefined && (!hasMore || (next && next !== token));
      if (!isWhole) throw calls.wrongAnswer(what, "a page of its list is not whole");
      for (const { Key: name = "", Size: sizeBytes, LastModified: modifiedAt } of found) {
        const key = this.#bucket.keyOf(name);
        if (key === undefined) continue;
        if (sizeBytes === undefined || !modifiedAt)
          throw calls.wrongAnswer(what, `${key} has no size or time`);
        yield { key, sizeBytes, modifiedAt };
      }
      token = hasMore ? next : undefined;
    } while (token !== undefined);
  }

  async delete(key: string): Promise<void> {
    const at = this.#bucket.at(key);
    const deleted = this.#bucket.calls.ask(`delete ${key}`, (s3, options) => s3.deleteObject(at, options));
    await unlessCode(ABSENT, undefined, deleted);
  }

  async beginUpload(key: string): Promise<Upload> {
    return await this.#uploads.begin(key);
  }

  async putPart(upload: Upload, number: number, bytes: Uint8Array): Promise<void> {
    await this.#uploads.putPart(upload, number, bytes);
  }

  async listParts(upload: Upload): Promise<Part[]> {
    const parts = await this.#uploads.list(upload);
    return parts.map(({ number, sizeBytes }) => ({ number, sizeBytes }));
  }

  async completeUpload(upload: Upload): Promise<void> {
    await this.#uploads.complete(upload);
  }

  async abortUpload(upload: Upload): Promise<void> {
    await this.#uploads.abort(upload);
  }

  /** An object of one part is there at once or not at all, and what died among the parts of a larger one is for the bucket's rules. */
  async removeUnfinished(): Promise<void> {}

  async close(): Promise<void> {
    this.#bucket.calls.close();
  }

  async #putWhole(key: string, bytes: Buffer, sha256: string, options: PutOptions): Promise<boolean> {
    const put = newPutId();
    const request = {
      ...this.#bucket.at(key),
      ...(options.ifAbsent && { IfNoneMatch: "*" }),
      Body: bytes,
      ContentLength: bytes.length,
      ChecksumSHA256: Buffer.from(sha256, "hex").toString("base64"),
      Metadata: { put, sha256 },
    };
    return await this.#bucket.settle({ key, put }, options, () =>
      this.#bucket.calls.ask(`put ${key}`, (s3, at) => s3.putObject(request, at), options.signal),
    );
  }

  async #putInParts(key: string, parts: AsyncIterable<BodyPart>, options: PutOptions): Promise<boolean> {
    const isThere = options.ifAbsent && (await this.#bucket.head(key));
    if (!isThere) return await this.#uploads.putAll(key, parts, options);
    // Only their size and sum are still wanted.
    for await (const _ of parts);
    return false;
  }
}

async function* joined(first: BodyPart, rest: AsyncIterable<BodyPart>): AsyncGenerator<BodyPart> {
  yield first;
  yield* rest;
}

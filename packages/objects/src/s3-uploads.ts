/** Uploads in parts to a bucket, which another process can continue. */
import { createHash } from "node:crypto";
import type { CompletedPart } from "@aws-sdk/client-s3";
import { MIB } from "@vivarium/kit/sizes";
import type { BodyPart } from "./in-parts.ts";
import { ABSENT, newPutId, type S3Bucket } from "./s3-bucket.ts";
import { unlessCode } from "./s3-calls.ts";
import { type Part, type PutOptions, type Upload, UploadGone } from "./store.ts";

const PART_BYTES = 8 * MIB;
const MAX_PARTS = 10_000;
const PARTS_AT_ONCE = 3;
const UPLOAD_ID = /^([0-9a-f]{32})\.(.+)$/;

interface SentPart extends Part {
  etag: string | undefined;
  /** SHA-256 in base64; undefined if the server does not keep it. */
  sum: string | undefined;
}

/** All parts but the last have one size, as some servers want, and there are no more than a server takes. */
export function partBytesFor(sizeBytes = 0): number {
  return Math.max(PART_BYTES, Math.ceil(sizeBytes / MAX_PARTS / MIB) * MIB);
}

export class S3Uploads {
  readonly #bucket: S3Bucket;

  constructor(bucket: S3Bucket) {
    this.#bucket = bucket;
  }

  /** Returns whether it made the object. */
  async putAll(key: string, parts: AsyncIterable<BodyPart>, options: PutOptions): Promise<boolean> {
    const upload = await this.begin(key, options);
    let isNew = false;
    try {
      const sent = await this.#putParts(upload, parts, options.signal);
      isNew = await this.#complete(upload, sent, options);
      return isNew;
    } finally {
      // Parts that stay behind all the same are the server's to remove, by a rule for uploads that were not completed.
      if (!isNew) await this.abort(upload).catch(() => undefined);
    }
  }

  async begin(key: string, { sha256, signal }: PutOptions = {}): Promise<Upload> {
    const put = newPutId();
    const request = {
      ...this.#bucket.at(key),
      ChecksumAlgorithm: "SHA256" as const,
      Metadata: { put, ...(sha256 !== undefined && { sha256 }) },
    };
    const what = `begin the upload of ${key}`;
    const { calls } = this.#bucket;
    const { UploadId: id } = await calls.ask(
      what,
      (s3, options) => s3.createMultipartUpload(request, options),
      signal,
    );
    if (!id) throw calls.wrongAnswer(what, "no id came");
    return { key, id: `${put}.${id}` };
  }

  async putPart(upload: Upload, number: number, bytes: Uint8Array, signal?: AbortSignal): Promise<SentPart> {
    const sum = createHash("sha256").update(bytes).digest("base64");
    const request = {
      ...this.#at(upload),
      PartNumber: number,
      Body: bytes,
      ContentLength: bytes.length,
      ChecksumSHA256: sum,
    };
    const { ETag: etag } = await this.#bucket.calls.ask(
      `put part ${number} of ${upload.key}`,
      (s3, options) => s3.uploadPart(request, options),
      signal,
    );
    return { number, sizeBytes: bytes.length, etag, sum };
  }

  /** Empty for an upload that is not known any more. */
  async list(upload: Upload): Promise<SentPart[]> {
    const at = this.#at(upload);
    const what = `list the parts of ${upload.key}`;
    const { calls } = this.#bucket;
    const parts: SentPart[] = [];
    let marker: string | undefined;
    do {
      const asked = calls.ask(what, (s3, options) =>
        s3.listParts({ ...at, PartNumberMarker: marker, MaxParts: calls.limits.listPage }, options),
      );
      const page = await unlessCode(["NoSuchUpload"], undefined, asked);
      if (!page) return [];
      const { Parts: found = [], IsTruncated: hasMore, NextPartNumberMarker: next } = page;
      if (hasMore === undefined || (hasMore && (!next || next === marker)))
        throw calls.wrongAnswer(what, "a page of its list is not whole");
      for (const { PartNumber: number, Size: sizeBytes, ETag: etag, ChecksumSHA256: sum } of found) {
        if (number === undefined || sizeBytes === undefined)
          throw calls.wrongAnswer(what, "a part of its list has no number or size");
        parts.push({ number, sizeBytes, etag, sum });
      }
      marker = hasMore ? next : undefined;
    } while (marker !== undefined);
    return parts;
  }

  async complete(upload: Upload): Promise<void> {
    const parts = await this.list(upload);
    if (parts.length > 0) await this.#complete(upload, parts);
    // An earlier call may have completed it, whose answer was lost.
    else if (!(await this.#bucket.isOf(upload.key, idsOf(upload).put))) throw new UploadGone(upload.key);
  }

  async abort(upload: Upload): Promise<void> {
    const at = this.#at(upload);
    const aborted = this.#bucket.calls.ask(`give up the upload of ${upload.key}`, (s3, options) =>
      s3.abortMultipartUpload(at, options),
    );
    await unlessCode(["NoSuchUpload", ...ABSENT], undefined, aborted);
  }

  #at(upload: Upload): { Bucket: string; Key: string; UploadId: string } {
    return { ...this.#bucket.at(upload.key), UploadId: idsOf(upload).id };
  }

  /** Puts some parts at a time. All of them have ended when it returns or throws: none arrives after the upload was given up. */
  async #putParts(
    upload: Upload,
    parts: AsyncIterable<BodyPart>,
    signal: AbortSignal | undefined,
  ): Promise<SentPart[]> {
    const failed = new AbortController();
    const stop = signal ? AbortSignal.any([signal, failed.signal]) : failed.signal;
    const sent: Promise<SentPart>[] = [];
    const underway = new Set<Promise<SentPart>>();
    try {
      for await (const { bytes } of parts) {
        while (underway.size >= PARTS_AT_ONCE) await Promise.race(underway);
        stop.throwIfAborted();
        if (sent.length === MAX_PARTS)
          throw new Error(`${upload.key} has more than ${MAX_PARTS} parts of its size: announce its size`);
        const part = this.putPart(upload, sent.length + 1, bytes, stop);
        sent.push(part);
        underway.add(part);
        part.then(
          () => underway.delete(part),
          (error: unknown) => failed.abort(error),
        );
      }
      return await Promise.all(sent);
    } catch (error) {
      failed.abort(error);
      await Promise.allSettled(sent);
      throw error;
    }
  }

  async #complete(
    upload: Upload,
    parts: readonly SentPart[],
    { ifAbsent, signal }: PutOptions = {},
  ): Promise<boolean> {
    const request = {
      ...this.#at(upload),
      ...(ifAbsent && { IfNoneMatch: "*" }),
      MultipartUpload: { Parts: parts.map(completedPart) },
    };
    const what = `complete the upload of ${upload.key}`;
    const { put } = idsOf(upload);
    return await this.#bucket.settle({ key: upload.key, put }, { ifAbsent, signal }, () =>
      this.#bucket.calls.ask(what, (s3, options) => s3.completeMultipartUpload(request, options), signal),
    );
  }
}

function completedPart({ number, etag, sum }: SentPart): CompletedPart {
  return { PartNumber: number, ETag: etag, ChecksumSHA256: sum };
}

/** An upload's id has that of the put and the server's. */
function idsOf(upload: Upload): { put: string; id: string } {
  const [, put, id] = UPLOAD_ID.exec(upload.id) ?? [];
  if (put === undefined || id === undefined) throw new Error("no id of an upload");
  return { put, id };
}

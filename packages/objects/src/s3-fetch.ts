/** Begins to read an object of a bucket, or a range of it. */
import type { Readable } from "node:stream";
import { ABSENT, type S3Bucket } from "./s3-bucket.ts";
import { unlessCode } from "./s3-calls.ts";
import { contentOf } from "./s3-content.ts";
import { S3Error } from "./s3-error.ts";
import type { Fetched, Range } from "./store.ts";

interface Wanted {
  first: number;
  /** Undefined: to the end. */
  last: number | undefined;
  /** The object must be the one that was read before. */
  etag?: string | undefined;
  signal: AbortSignal | undefined;
}

interface Opened {
  body: Readable;
  sizeBytes: number;
  etag: string | undefined;
  sha256: string | undefined;
}

/** Undefined if there is no such object. */
export async function fetchObject(
  bucket: S3Bucket,
  key: string,
  { range, signal }: { range?: Range | undefined; signal?: AbortSignal | undefined },
): Promise<Fetched | undefined> {
  const first = range?.first ?? 0;
  if (range && (first < 0 || first > range.last)) throw noBytes(key, range);
  const opened = await open(bucket, key, { first, last: range?.last, signal }).catch(
    async (error: unknown) => {
      if (error instanceof S3Error && error.status === 416) return await sizeOf(bucket, key);
      throw error;
    },
  );
  if (opened === undefined) return undefined;
  if (typeof opened === "number") {
    if (range) throw noBytes(key, range, opened);
    // An empty object has no first byte.
    if (opened === 0) return { sizeBytes: 0, content: (async function* () {})() };
    throw bucket.calls.wrongAnswer(`read ${key}`, "it has bytes, and said that it had none");
  }
  const { body, sizeBytes, etag, sha256 } = opened;
  if (range && range.last >= sizeBytes) {
    body.destroy();
    throw noBytes(key, range, sizeBytes);
  }
  const last = range?.last ?? sizeBytes - 1;
  const content = contentOf({
    body,
    first,
    last,
    sha256: range ? undefined : sha256,
    limits: bucket.calls.limits,
    signal,
    continueAt: async (at) => await reopen(bucket, key, { first: at, last, etag, signal }),
    failed: (found) => bucket.calls.wrongAnswer(`read ${key} to its end`, found),
  });
  return { sizeBytes, content };
}

async function sizeOf(bucket: S3Bucket, key: string): Promise<number | undefined> {
  return (await bucket.head(key))?.ContentLength;
}

async function open(bucket: S3Bucket, key: string, wanted: Wanted): Promise<Opened | undefined> {
  const { first, last, etag, signal } = wanted;
  const request = {
    ...bucket.at(key),
    // The answer to a range says how many bytes the object has, besides how many follow.
    Range: `bytes=${first}-${last ?? ""}`,
    ...(etag !== undefined && { IfMatch: etag }),
  };
  const what = `read ${key}`;
  const asked = bucket.calls.ask(what, (s3, options) => s3.getObject(request, options), signal);
  const answer = await unlessCode(ABSENT, undefined, asked);
  if (!answer) return undefined;
  const body = answer.Body as Readable;
  // A server may answer with the whole object.
  const isWhole = answer.ContentRange === undefined && first === 0 && last === undefined;
  const sizeBytes = isWhole ? answer.ContentLength : sizeIn(answer.ContentRange, first);
  if (sizeBytes !== undefined) return { body, sizeBytes, etag: answer.ETag, sha256: answer.Metadata?.sha256 };
  body.destroy();
  throw bucket.calls.wrongAnswer(what, "other bytes came than were asked for");
}

async function reopen(bucket: S3Bucket, key: string, wanted: Wanted): Promise<Readable> {
  const opened = await open(bucket, key, wanted);
  if (!opened) throw bucket.calls.wrongAnswer(`read ${key} to its end`, "it was deleted meanwhile");
  return opened.body;
}

/** Size of the whole object, of a `Content-Range` that begins where it should. */
function sizeIn(contentRange: string | undefined, first: number): number | undefined {
  const [, from, size] = /^bytes (\d+)-\d+\/(\d+)$/.exec(contentRange ?? "") ?? [];
  return Number(from) === first && size !== undefined ? Number(size) : undefined;
}

function noBytes(key: string, { first, last }: Range, sizeBytes?: number): RangeError {
  const size = sizeBytes === undefined ? "" : `: it has ${sizeBytes}`;
  return new RangeError(`the object ${key} has no bytes ${first} to ${last}${size}`);
}

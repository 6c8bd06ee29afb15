/**
 * Decodes the body of an answer whose origin ignored `Accept-Encoding: identity`, so that it can be searched. The guest
 * gets the decoded body.
 */
import type { Transform } from "node:stream";
import { createBrotliDecompress, createGunzip, createInflate, createZstdDecompress } from "node:zlib";
import { type Header, valuesOf } from "@vivarium/http1/headers";

/** Bounds of what a body may become: a compressed bomb is cut off. */
const MAX_RATIO = 100;
const MAX_BYTES = 64 * 1024 * 1024;

const DECODERS: ReadonlyMap<string, () => Transform> = new Map([
  ["gzip", () => createGunzip()],
  ["x-gzip", () => createGunzip()],
  ["deflate", () => createInflate()],
  ["br", () => createBrotliDecompress()],
  ["zstd", () => createZstdDecompress()],
]);

export type Coding =
  | { kind: "plain" }
  | { kind: "coded"; decoder: Transform }
  /** Cannot be decoded: an unknown coding, several, or a part of a coded body. */
  | { kind: "unreadable" };

export function codingOf(status: number, headers: readonly Header[]): Coding {
  const codings = valuesOf(headers, "content-encoding")
    .flatMap((value) => value.toLowerCase().split(/[\s,]+/))
    .filter((coding) => coding !== "" && coding !== "identity");
  if (codings.length === 0) return { kind: "plain" };
  const decoder = codings.length === 1 && status !== 206 ? DECODERS.get(codings[0] ?? "") : undefined;
  return decoder ? { kind: "coded", decoder: decoder() } : { kind: "unreadable" };
}

/** Headers of a decoded body. */
export function withoutCoding(headers: readonly Header[]): Header[] {
  const dropped = ["content-encoding", "content-length", "content-md5", "digest", "etag"];
  return headers.filter(([name]) => !dropped.includes(name.toLowerCase()));
}

/** Counts what goes into and comes out of a decoder. Calls `onBomb` once when that is out of proportion. */
export function watchRatio(decoder: Transform, onBomb: () => void): void {
  let bytesIn = 0;
  let bytesOut = 0;
  const write = decoder.write.bind(decoder) as (chunk: Buffer) => boolean;
  decoder.write = ((chunk: Buffer) => {
    bytesIn += chunk.length;
    return write(chunk);
  }) as Transform["write"];
  const onData = (chunk: Buffer) => {
    bytesOut += chunk.length;
    if (bytesOut <= MAX_BYTES || bytesOut <= bytesIn * MAX_RATIO) return;
    decoder.off("data", onData);
    onBomb();
  };
  decoder.on("data", onData);
}

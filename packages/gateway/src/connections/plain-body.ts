/**
 * Decodes the body of an answer whose origin ignored `Accept-Encoding: identity`, so that it can be searched. The guest
 * gets the decoded body.
 */
import type { Transform } from "node:stream";
import {
  constants,
  createBrotliDecompress,
  createGunzip,
  createInflate,
  createZstdDecompress,
} from "node:zlib";
import { type Header, valuesOf } from "@vivarium/http1/headers";

/** Bounds of what a body may become: a compressed bomb is cut off. */
const MAX_RATIO = 100;
const MAX_BYTES = 64 * 1024 * 1024;

/** Window of zstd, in bits of its size: 8 MiB, which is the most that the coding may need (RFC 9659). */
const ZSTD_WINDOW_BITS = 23;
const MIB = 1024 * 1024;

interface Decoder {
  /** Most memory that the origin can make it take: the window is the origin's choice, up to a limit. */
  bytes: number;
  make: () => Transform;
}

const gzip: Decoder = { bytes: MIB / 4, make: () => createGunzip() };
const DECODERS: ReadonlyMap<string, Decoder> = new Map([
  ["gzip", gzip],
  ["x-gzip", gzip],
  ["deflate", { bytes: MIB / 4, make: () => createInflate() }],
  // Larger windows than 16 MiB are refused by default.
  ["br", { bytes: 16 * MIB, make: () => createBrotliDecompress() }],
  ["zstd", { bytes: 9 * MIB, make: () => createZstdDecompress({ params: ZSTD_PARAMS }) }],
]);
const ZSTD_PARAMS = { [constants.ZSTD_d_windowLogMax]: ZSTD_WINDOW_BITS };

export type Coding =
  | { kind: "plain" }
  | { kind: "coded"; decoder: Decoder }
  /** Cannot be decoded: an unknown coding, several, or a part of a coded body. */
  | { kind: "unreadable" };

export function codingOf(status: number, headers: readonly Header[]): Coding {
  const codings = valuesOf(headers, "content-encoding")
    .flatMap((value) => value.toLowerCase().split(/[\s,]+/))
    .filter((coding) => coding !== "" && coding !== "identity");
  if (codings.length === 0) return { kind: "plain" };
  const decoder = codings.length === 1 && status !== 206 ? DECODERS.get(codings[0] ?? "") : undefined;
  return decoder ? { kind: "coded", decoder } : { kind: "unreadable" };
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

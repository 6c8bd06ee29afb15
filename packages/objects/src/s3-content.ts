/**
 * Reads bytes of an object to their end. An answer that breaks off, stalls or is short is continued by another request, a
 * bounded number of times without progress; bytes that cannot be had are an error, never an end.
 */
import { createHash } from "node:crypto";
import type { Readable } from "node:stream";
import { sleep } from "@vivarium/kit/clock";
import { messageOf } from "@vivarium/kit/unknown-error";
import { S3Error } from "./s3-error.ts";
import type { S3Limits } from "./s3-settings.ts";

const FIRST_PAUSE_MS = 100;

export interface Reading {
  body: Readable;
  first: number;
  /** Both ends are included. */
  last: number;
  /** Sum of all bytes from first to last, where it is known. */
  sha256: string | undefined;
  limits: Pick<S3Limits, "attempts" | "idleMs">;
  signal: AbortSignal | undefined;
  /** Asks for the rest of the same object, from this byte. */
  continueAt: (first: number) => Promise<Readable>;
  failed: (found: string) => S3Error;
}

export async function* contentOf(reading: Reading): AsyncGenerator<Uint8Array> {
  const { first, last, sha256, limits, signal, failed } = reading;
  const hash = sha256 === undefined ? undefined : createHash("sha256");
  let { body } = reading;
  let at = first;
  for (let failures = 0; ; ) {
    try {
      for await (const piece of piecesOf(body, limits.idleMs)) {
        at += piece.length;
        if (at > last + 1) throw failed(`it sent more bytes than ${last + 1 - first}`);
        failures = 0;
        hash?.update(piece);
        yield piece;
      }
      if (at > last) break;
      throw new Error("the answer ended early");
    } catch (error) {
      signal?.throwIfAborted();
      if (error instanceof S3Error) throw error;
      if (++failures === limits.attempts)
        throw failed(`only ${at - first} of ${last + 1 - first} bytes came (${messageOf(error)})`);
    }
    await sleep(FIRST_PAUSE_MS * 2 ** failures, signal);
    signal?.throwIfAborted();
    body = await reading.continueAt(at);
  }
  if (hash && hash.digest("hex") !== sha256)
    throw failed("the bytes do not have the sum that was stored with them");
}

/** Only the time that the reader waits counts as silence, not the time that it takes for a piece. */
async function* piecesOf(body: Readable, idleMs: number): AsyncGenerator<Uint8Array> {
  const pieces = body[Symbol.asyncIterator]();
  try {
    for (;;) {
      const timer = setTimeout(() => body.destroy(new Error(`no byte for ${idleMs} ms`)), idleMs);
      const { done, value } = await pieces.next().finally(() => clearTimeout(timer));
      if (done) return;
      yield value;
    }
  } finally {
    body.destroy();
  }
}

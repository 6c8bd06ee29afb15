/**
 * The place of a store in a bucket, and what is known of its objects. The object of a key is named `<prefix><key>!`: that
 * sign is before all others of keys, so lists have the order of keys, and a server that keeps objects as files takes both
 * `a` and `a/b`.
 *
 * An object carries the random id of the put that made it. A request that is sent again because its answer was lost may
 * find what it has done itself; the id says whether it did. It says more than a sum, which another put may share.
 */
import { randomBytes } from "node:crypto";
import type { HeadObjectCommandOutput } from "@aws-sdk/client-s3";
import { sleep } from "@vivarium/kit/clock";
import { S3Calls, unlessCode } from "./s3-calls.ts";
import { S3Error } from "./s3-error.ts";
import type { S3Settings } from "./s3-settings.ts";
import { type PutOptions, requireKey } from "./store.ts";

const END = "!";
const CONFLICT_PAUSE_MS = 100;
/** Codes of answers about an object that is not there. */
export const ABSENT = ["NoSuchKey", "NotFound"];

export class S3Bucket {
  readonly calls: S3Calls;
  readonly name: string;
  readonly prefix: string;
  #isKnown = false;

  constructor(settings: S3Settings) {
    this.calls = new S3Calls(settings);
    this.name = settings.bucket;
    this.prefix = settings.prefix;
  }

  at(key: string): { Bucket: string; Key: string } {
    requireKey(key);
    return { Bucket: this.name, Key: this.prefix + key + END };
  }

  /** Undefined for an object that no store has put there. */
  keyOf(name: string): string | undefined {
    const isOurs = name.startsWith(this.prefix) && name.endsWith(END);
    return isOurs ? name.slice(this.prefix.length, -END.length) : undefined;
  }

  async head(key: string): Promise<HeadObjectCommandOutput | undefined> {
    const at = this.at(key);
    const asked = this.calls.ask(`describe ${key}`, (s3, options) => s3.headObject(at, options));
    const found = await unlessCode(ABSENT, undefined, asked);
    // This answer has no body that would say whether the object is absent, or its bucket.
    if (!found && !this.#isKnown) await this.#requireBucket();
    return found;
  }

  /**
   * Does the work of a put. Returns whether it made the object. Its answer, or that of an earlier attempt, may be lost: then
   * the object that is there says it.
   */
  async settle(
    { key, put }: { key: string; put: string },
    { ifAbsent, signal }: PutOptions,
    work: () => Promise<unknown>,
  ): Promise<boolean> {
    try {
      await this.#withoutConflicts(work, signal);
      return true;
    } catch (error) {
      if (!(error instanceof S3Error)) throw error;
      if (ifAbsent && error.status === 412) return await this.isOf(key, put);
      const mayBeDone = error.isUnsettled || error.code === "NoSuchUpload";
      if (mayBeDone && (await this.isOf(key, put).catch(() => false))) return true;
      throw error;
    }
  }

  /** Whether the object is the one that this put made. */
  async isOf(key: string, put: string): Promise<boolean> {
    return (await this.head(key))?.Metadata?.put === put;
  }

  /** Several requests for one name at a time may be refused because of each other. */
  async #withoutConflicts(work: () => Promise<unknown>, signal: AbortSignal | undefined): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      try {
        await work();
        return;
      } catch (error) {
        const isConflict = error instanceof S3Error && error.status === 409;
        if (!isConflict || attempt === this.calls.limits.attempts) throw error;
      }
      await sleep(CONFLICT_PAUSE_MS * 2 ** attempt, signal);
      signal?.throwIfAborted();
    }
  }

  async #requireBucket(): Promise<void> {
    const what = "find its bucket";
    const asked = this.calls.ask(what, async (s3, options) => {
      await s3.headBucket({ Bucket: this.name }, options);
      return true;
    });
    this.#isKnown = await unlessCode(["NotFound", "NoSuchBucket"], false, asked);
    if (!this.#isKnown) throw this.calls.failure("NoSuchBucket", what);
  }
}

export function newPutId(): string {
  return randomBytes(16).toString("hex");
}

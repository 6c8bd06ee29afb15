/** Calls of an S3 server: each has a bounded number of attempts and a bounded time, and fails with an `S3Error`. */
import { S3 } from "@aws-sdk/client-s3";
import { explained, S3Error } from "./s3-error.ts";
import type { S3Limits, S3Settings } from "./s3-settings.ts";

const USUAL_LIMITS: S3Limits = {
  attempts: 5,
  connectMs: 5_000,
  idleMs: 60_000,
  callMs: 300_000,
  listPage: 1_000,
};
const CONNECTIONS = 50;

type Options = { abortSignal: AbortSignal };

export class S3Calls {
  readonly limits: S3Limits;
  readonly #s3: S3;
  readonly #place: string;

  constructor(settings: S3Settings) {
    this.limits = { ...USUAL_LIMITS, ...settings.limits };
    this.#place = `s3://${settings.bucket}${settings.endpoint ? ` at ${settings.endpoint}` : ""}`;
    const { connectMs, idleMs, callMs, attempts } = this.limits;
    this.#s3 = new S3({
      region: settings.region,
      ...(settings.endpoint && { endpoint: settings.endpoint }),
      forcePathStyle: settings.isPathStyle,
      // An identity that has expired is asked for again.
      credentials: async () => ({ ...(await settings.credentials()), expiration: new Date() }),
      maxAttempts: attempts,
      retryMode: "standard",
      // Sums are given with each request that needs one; those that the SDK adds by itself are not known to every server.
      requestChecksumCalculation: "WHEN_REQUIRED",
      responseChecksumValidation: "WHEN_REQUIRED",
      requestHandler: {
        connectionTimeout: connectMs,
        socketTimeout: idleMs,
        requestTimeout: callMs,
        throwOnRequestTimeout: true,
        httpAgent: { keepAlive: true, maxSockets: CONNECTIONS },
        httpsAgent: { keepAlive: true, maxSockets: CONNECTIONS },
      },
    });
  }

  /** The signal also ends the body of an answer; the time limit only counts until the answer begins. */
  async ask<T>(
    what: string,
    call: (s3: S3, options: Options) => Promise<T>,
    signal?: AbortSignal,
  ): Promise<T> {
    const late = new AbortController();
    const timer = setTimeout(() => late.abort(), this.limits.callMs);
    try {
      const abortSignal = signal ? AbortSignal.any([signal, late.signal]) : late.signal;
      return await call(this.#s3, { abortSignal });
    } catch (error) {
      signal?.throwIfAborted();
      throw explained(late.signal.aborted ? new LateAnswer() : error, what, this.#place);
    } finally {
      clearTimeout(timer);
    }
  }

  /** The error for an answer that was not what the protocol says. */
  wrongAnswer(what: string, found: string): S3Error {
    return new S3Error(`the object store ${this.#place} did not ${what}: ${found}.`, "WrongAnswer");
  }

  /** The error for a code that a call has returned, and that means another one. */
  failure(code: string, what: string): Error {
    return explained(Object.assign(new Error(code), { code }), what, this.#place);
  }

  close(): void {
    this.#s3.destroy();
  }
}

class LateAnswer extends Error {
  override name = "TimeoutError";
}

/** The value, if the call fails with one of these codes. */
export async function unlessCode<T, U>(codes: readonly string[], value: U, call: Promise<T>): Promise<T | U> {
  try {
    return await call;
  } catch (error) {
    if (error instanceof S3Error && codes.includes(error.code)) return value;
    throw error;
  }
}

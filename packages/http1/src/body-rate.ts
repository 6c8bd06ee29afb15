/**
 * A minimum rate for request bodies: a client that sends its body byte by byte keeps a connection and memory for as
 * long as it likes. A body that keeps to the rate may take any time.
 */
import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { Readable } from "node:stream";

export interface BodyRate {
  windowMs: number;
  bytes: number;
}

/** At least 30 KiB in each window of 30 s. */
export const MIN_BODY_RATE: BodyRate = { windowMs: 30_000, bytes: 30 * 1024 };
export const TOO_SLOW = "ERR_BODY_TOO_SLOW";

/** Calls `giveUp` when less than `rate` arrives. For bodies that are read without pause, so the client is the cause. */
export function watchBodyRate(
  request: IncomingMessage,
  rate: BodyRate,
  giveUp: (socket: Socket) => void,
): void {
  const { socket } = request;
  let seen = socket.bytesRead;
  const check = () => {
    const arrived = socket.bytesRead - seen;
    seen = socket.bytesRead;
    if (request.complete || socket.destroyed) return stop();
    if (arrived >= rate.bytes) return;
    stop();
    giveUp(socket);
  };
  // After a stall of this process the bytes that arrived meanwhile are read before the check: timers run before reads,
  // immediates after them.
  const timer = setInterval(() => setImmediate(check), rate.windowMs).unref();
  const stop = () => clearInterval(timer);
  request.once("end", stop).once("close", stop);
}

/** A body whose reader may pause: only time in which the reader waits for bytes counts against the client. */
export class PacedBody extends Readable {
  readonly #body: IncomingMessage;
  readonly #rate: BodyRate;
  readonly #check: NodeJS.Timeout;
  /** Time since which the reader waits for bytes (`performance.now()`); undefined while it has enough. */
  #askedAt: number | undefined;
  #waitedMs = 0;
  #bytes = 0;
  #wasRead = false;

  constructor(body: IncomingMessage, rate = MIN_BODY_RATE) {
    super();
    this.#body = body;
    this.#rate = rate;
    this.#check = setInterval(() => this.#checkRate(), rate.windowMs / 10).unref();
    body.on("data", this.#take).once("end", this.#end).once("error", this.#fail).once("close", this.#close);
    body.pause();
    // A body may break off before it is read, and an error without a listener would end the process.
    this.on("error", () => {});
  }

  /** Whether any of the body was read, so that it cannot be sent from its beginning again. */
  get wasRead(): boolean {
    return this.#wasRead;
  }

  /** Reads the rest of the body and drops it, so that the client reads the answer. */
  discardRest(): void {
    this.destroy();
    this.#body.on("error", () => {}).resume();
  }

  override _read(): void {
    this.#askedAt ??= performance.now();
    this.#body.resume();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    clearInterval(this.#check);
    this.#body.off("data", this.#take).off("end", this.#end).off("close", this.#close).pause();
    done(error);
  }

  readonly #take = (chunk: Buffer): void => {
    this.#wasRead = true;
    const now = performance.now();
    this.#waitedMs += now - (this.#askedAt ?? now);
    this.#bytes += chunk.length;
    if (this.#bytes >= this.#rate.bytes) this.#waitedMs = this.#bytes = 0;
    const wantsMore = this.push(chunk);
    this.#askedAt = wantsMore ? now : undefined;
    if (!wantsMore) this.#body.pause();
  };
  readonly #end = (): void => {
    clearInterval(this.#check);
    this.push(null);
  };
  readonly #fail = (error: Error): void => void this.destroy(error);
  readonly #close = (): void => {
    if (this.#body.readableEnded) return;
    this.destroy(failure("ECONNRESET", "the client left while it sent the body"));
  };

  #checkRate(): void {
    const waitedMs = this.#waitedMs + (this.#askedAt === undefined ? 0 : performance.now() - this.#askedAt);
    const { windowMs, bytes } = this.#rate;
    if (waitedMs < windowMs) return;
    const expected = `at least ${bytes} bytes every ${windowMs / 1000} seconds are expected`;
    this.destroy(failure(TOO_SLOW, `request body: it arrives too slowly; ${expected}`));
  }
}

function failure(code: string, message: string): Error {
  return Object.assign(new Error(message), { code });
}

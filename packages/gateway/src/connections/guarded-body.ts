/**
 * Passes the body of an answer to the guest, and stops before the credential if the body carries it. Keeps back-pressure,
 * and holds at most the beginning of a secret.
 */
import { Writable } from "node:stream";
import type { SecretScan } from "./secret-scan.ts";

/**
 * Silence after which a few held bytes are passed on. Hazard: a message that ends in the first character of the secret is
 * complete for its sender, which may wait for the guest's reply.
 */
const EARLY_MS = 20;

export interface Guarded {
  scan: SecretScan;
  /** Receives what is passed on. Is ended by the callee of `onEnd`. */
  to: Writable;
  onEnd: () => void;
  /** The body carries the credential; everything before it was passed on. */
  onHit: () => void;
}

export class GuardedBody extends Writable {
  readonly #guarded: Guarded;
  #early: NodeJS.Timeout | undefined;
  bytes = 0;

  constructor(guarded: Guarded) {
    super();
    this.#guarded = guarded;
    // Without a listener an error would end the process.
    this.on("error", () => {});
  }

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    clearTimeout(this.#early);
    const { scan } = this.#guarded;
    const { clean, isHit } = scan.read(chunk);
    if (isHit) {
      this.#pass(clean, () => this.#guarded.onHit(), true);
      return;
    }
    if (scan.mayRelease) this.#early = setTimeout(() => this.#pass(scan.release(), () => {}), EARLY_MS);
    this.#pass(clean, done);
  }

  override _final(done: () => void): void {
    clearTimeout(this.#early);
    this.#pass(this.#guarded.scan.release(), () => {
      done();
      this.#guarded.onEnd();
    });
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    clearTimeout(this.#early);
    done(error);
  }

  /** Calls back once more may be written; with `isFlushed`, once these bytes have left. */
  #pass(bytes: Buffer, then: () => void, isFlushed = false): void {
    const { to } = this.#guarded;
    if (to.destroyed) return;
    this.bytes += bytes.length;
    if (bytes.length === 0) then();
    else if (isFlushed) to.write(bytes, then);
    else if (to.write(bytes)) then();
    else to.once("drain", then);
  }
}

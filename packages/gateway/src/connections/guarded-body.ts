/**
 * Passes the body of an answer to the guest, and stops before the credential if the body carries it. Keeps back-pressure,
 * and is behind by a few lengths of the credential until the origin is silent.
 */
import { Writable } from "node:stream";
import type { Guard } from "@vivarium/http1/guard";
import type { SecretScan } from "./secret-scan.ts";
import type { SessionShare } from "./session-share.ts";

/** Bytes that are searched at a time: the session's next piece waits for a turn. */
const PIECE_BYTES = 16 * 1024;

/** Silence of the origin after which held bytes are passed on: it may wait for the guest's reply to what it has sent. */
const EARLY_MS = 10;

export interface Guarded {
  scan: SecretScan;
  share: Pick<SessionShare, "search">;
  /** Wraps work that is done later. */
  guard: Guard;
  /** Receives what is passed on. Is ended by the callee of `onEnd`. */
  to: Writable;
  onEnd: () => void;
  /** The body carries the credential, or a long beginning of it and then nothing; everything before it was passed on. */
  onHit: () => void;
}

export class GuardedBody extends Writable {
  readonly #guarded: Guarded;
  #early: NodeJS.Timeout | undefined;
  /** Whether the body was cut: nothing of the origin passes any more. */
  #isCut = false;
  bytes = 0;

  constructor(guarded: Guarded) {
    super();
    this.#guarded = guarded;
    // Without a listener an error would end the process.
    this.on("error", () => {});
  }

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.#search(chunk, done);
  }

  /** Takes a turn for each piece. The next one waits until this one was passed on. */
  #search(bytes: Buffer, done: () => void): void {
    const piece = bytes.subarray(0, PIECE_BYTES);
    const rest = bytes.subarray(PIECE_BYTES);
    const { scan, share, guard } = this.#guarded;
    const work = () => {
      // After the end of the exchange the credential may be forgotten, so that a search would find nothing.
      if (this.destroyed || this.#isCut) return;
      clearTimeout(this.#early);
      const { clean, isHit } = scan.read(piece);
      if (isHit) {
        this.#cut(clean);
        return;
      }
      this.#pass(clean, rest.length > 0 ? () => this.#search(rest, done) : () => this.#await(done));
    };
    share.search(piece.length, guard(work));
  }

  /** Silence begins once the guest has taken what there was: while it does not read, the origin is not read either. */
  #await(done: () => void): void {
    const { scan, guard } = this.#guarded;
    const early = () => {
      // More is here, and waits for its turn.
      if (this.writableLength > 0 || this.destroyed || this.#isCut) return;
      if (scan.mayRelease) this.#pass(scan.release(), () => {});
      else if (scan.isGuess) this.#cut(scan.cut());
    };
    done();
    // The next chunk may have been searched within this call: only the latest silence counts.
    clearTimeout(this.#early);
    if (this.writableLength === 0) this.#early = setTimeout(guard(early), EARLY_MS);
  }

  override _final(done: () => void): void {
    clearTimeout(this.#early);
    if (this.#isCut) done();
    else
      this.#pass(this.#guarded.scan.release(), () => {
        done();
        this.#guarded.onEnd();
      });
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    clearTimeout(this.#early);
    done(error);
  }

  /** Passes the last bytes that the guest gets. */
  #cut(clean: Buffer): void {
    this.#isCut = true;
    this.#pass(clean, this.#guarded.onHit, true);
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

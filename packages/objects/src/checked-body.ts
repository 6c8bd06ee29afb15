/** Counts and sums the bytes of a body while they pass, and compares both with what was announced. */
import { createHash } from "node:crypto";
import { type Body, ObjectMismatch, type PutOptions, piecesOf } from "./store.ts";

export class CheckedBody {
  readonly #body: Body;
  readonly #expected: Pick<PutOptions, "sizeBytes" | "sha256" | "signal">;
  readonly #hash = createHash("sha256");
  sizeBytes = 0;
  /** Set once all bytes have passed. */
  sha256 = "";

  constructor(body: Body, expected: Pick<PutOptions, "sizeBytes" | "sha256" | "signal"> = {}) {
    this.#body = body;
    this.#expected = expected;
  }

  /** Throws before its end if the bytes are not those that were announced. */
  async *pieces(): AsyncGenerator<Uint8Array> {
    const { sizeBytes, signal } = this.#expected;
    for await (const piece of piecesOf(this.#body)) {
      signal?.throwIfAborted();
      this.sizeBytes += piece.length;
      if (sizeBytes !== undefined && this.sizeBytes > sizeBytes) this.#refuse();
      this.#hash.update(piece);
      yield piece;
    }
    this.sha256 = this.#hash.digest("hex");
    this.#compare();
  }

  #compare(): void {
    const { sizeBytes, sha256 } = this.#expected;
    if (sizeBytes !== undefined && this.sizeBytes !== sizeBytes) this.#refuse();
    if (sha256 !== undefined && this.sha256 !== sha256)
      throw new ObjectMismatch("the bytes do not have the sum that was announced");
  }

  #refuse(): never {
    throw new ObjectMismatch(
      `the bytes are ${this.sizeBytes} or more, and ${this.#expected.sizeBytes} were announced`,
    );
  }
}

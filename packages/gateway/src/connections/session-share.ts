/** The share of one session in what all sessions need: time on the one thread, and memory. */
import { Lingering } from "./lingering.ts";
import type { Turns } from "./turns.ts";

/** Memory of the decoders that one session may have at a time: of gzip hundreds, of the others a few. */
const DECODER_BYTES = 64 * 1024 * 1024;

interface Waiting {
  bytes: number;
  then: () => void;
}

export class SessionShare {
  /** Refused requests whose answers the guest has not taken. */
  readonly refused = new Lingering();
  readonly #turns: Turns;
  #left = DECODER_BYTES;
  readonly #waiting = new Set<Waiting>();

  constructor(turns: Turns) {
    this.#turns = turns;
  }

  /** Searches so many bytes when it is the session's turn. `work` must not throw. */
  search(bytes: number, work: () => void): void {
    this.#turns.take(this, bytes, work);
  }

  /** Calls `then` once a decoder may take so much memory. The function that is returned gives it back, or ends the wait. */
  takeMemory(bytes: number, then: () => void): () => void {
    const waiting = { bytes, then };
    this.#waiting.add(waiting);
    let isTaken = true;
    this.#serve();
    return () => {
      if (!isTaken) return;
      isTaken = false;
      if (this.#waiting.delete(waiting)) return;
      this.#left += bytes;
      this.#serve();
    };
  }

  /** In the order of arrival: a large decoder is not passed over for ever. */
  #serve(): void {
    for (const waiting of this.#waiting) {
      if (waiting.bytes > this.#left) return;
      this.#waiting.delete(waiting);
      this.#left -= waiting.bytes;
      waiting.then();
    }
  }
}

/**
 * Shares the gateway's one thread among sessions: work that waits is done in small pieces, one of each session after the
 * other, however many pieces each of them has.
 */

/** Work of one turn of the event loop, in bytes that are searched: some milliseconds, whatever the bytes are. */
const TURN_BYTES = 128 * 1024;

interface Piece {
  bytes: number;
  work: () => void;
}

export class Turns {
  /** Pieces of work by session, in the order of the next turns. */
  readonly #waiting = new Map<object, Piece[]>();
  #left = TURN_BYTES;
  #isScheduled = false;

  /** Does the work at once if nobody waits, otherwise when it is the session's turn. The work must not throw. */
  take(session: object, bytes: number, work: () => void): void {
    this.#schedule();
    if (this.#waiting.size === 0 && this.#left > 0) {
      this.#left -= bytes;
      work();
      return;
    }
    const pieces = this.#waiting.get(session);
    if (pieces) pieces.push({ bytes, work });
    else this.#waiting.set(session, [{ bytes, work }]);
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      this.#left = TURN_BYTES;
      this.#serve();
      if (this.#waiting.size > 0) this.#schedule();
    });
  }

  #serve(): void {
    for (const [session, pieces] of this.#waiting) {
      if (this.#left <= 0) return;
      // Back to the end of the line, before the work, which may add more.
      this.#waiting.delete(session);
      const piece = pieces.shift();
      if (pieces.length > 0) this.#waiting.set(session, pieces);
      if (!piece) continue;
      this.#left -= piece.bytes;
      piece.work();
    }
  }
}

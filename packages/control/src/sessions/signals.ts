/** Wakes waiters in this process when a session moves. Moves by other processes are found by polling the row. */
import { EventEmitter } from "node:events";
import { sleep } from "@vivarium/kit/clock";

/** Event name for "any session": no session has this id. */
const ANY = "*";

export class SessionSignals {
  readonly #emitter = new EventEmitter().setMaxListeners(0);

  moved(sessionId: string): void {
    this.#emitter.emit(sessionId);
    this.#emitter.emit(ANY);
  }

  /** Calls `listener` whenever the session moves, until the returned function is called. */
  onMove(sessionId: string, listener: () => void): () => void {
    this.#emitter.on(sessionId, listener);
    return () => this.#emitter.off(sessionId, listener);
  }

  /** Calls `listener` whenever any session moves, until the returned function is called. */
  onAnyMove(listener: () => void): () => void {
    return this.onMove(ANY, listener);
  }

  /** Resolves when the session moves, or after `ms`. */
  async waitForMove(sessionId: string, ms: number): Promise<void> {
    const moved = new AbortController();
    const stopListening = this.onMove(sessionId, () => moved.abort());
    await sleep(ms, moved.signal);
    stopListening();
  }
}

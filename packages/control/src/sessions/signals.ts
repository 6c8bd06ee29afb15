import { EventEmitter } from "node:events";

/** No session has this id. */
const ANY = "*";

/** Tells waiters in this process that a session has moved. Moves by other processes are found by reading the row. */
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

  /** Likewise, whichever session moves. */
  onAnyMove(listener: () => void): () => void {
    return this.onMove(ANY, listener);
  }

  /** Resolves when the session moves, or after `ms`. */
  waitForMove(sessionId: string, ms: number): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        stopListening();
        resolve();
      };
      const timer = setTimeout(done, ms);
      const stopListening = this.onMove(sessionId, done);
    });
  }
}

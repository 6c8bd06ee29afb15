import { EventEmitter } from "node:events";

/** Tells waiters in this process that a session has moved. Moves by other processes are found by reading the row. */
export class SessionSignals {
  readonly #emitter = new EventEmitter().setMaxListeners(0);

  moved(sessionId: string): void {
    this.#emitter.emit(sessionId);
  }

  /** Resolves when the session moves, or after `ms`. */
  waitForMove(sessionId: string, ms: number): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        this.#emitter.off(sessionId, done);
        resolve();
      };
      const timer = setTimeout(done, ms);
      this.#emitter.on(sessionId, done);
    });
  }
}

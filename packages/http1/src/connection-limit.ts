/** A limit on open connections. When the last one is taken, the connection that has been idle longest is closed. */
import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { pipelineOf } from "./pipelining.ts";

export class ConnectionLimit {
  readonly #most: number;
  readonly #idle = new Set<Socket>();
  readonly #watched = new WeakSet<Socket>();
  #open = 0;

  constructor(most: number) {
    this.#most = most;
  }

  /** Counts a connection that was just accepted. */
  add(socket: Socket): void {
    this.#open++;
    socket.once("close", () => this.#open--);
    if (this.#open >= this.#most) this.#destroyOneIdle();
  }

  /** Counts a request. False: the connection has too many unanswered ones. `socket`: the connection, or TLS over it. */
  admits(socket: Socket, response: ServerResponse): boolean {
    const pipeline = pipelineOf(socket);
    if (!pipeline.add(response)) return false;
    this.#idle.delete(socket);
    response.once("close", () => {
      if (pipeline.unanswered === 0 && !socket.destroyed) this.#idle.add(socket);
    });
    if (!this.#watched.has(socket)) socket.once("close", () => this.#idle.delete(socket));
    this.#watched.add(socket);
    return true;
  }

  #destroyOneIdle(): void {
    const [oldest] = this.#idle;
    if (oldest === undefined) return;
    this.#idle.delete(oldest);
    oldest.destroy();
  }
}

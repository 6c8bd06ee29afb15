/**
 * The connections of visitors and what is under way on each. When the last place is taken, the one that has rested
 * longest goes, so that who comes next finds one.
 */
import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";

/** Requests that one connection may send without an answer. Neither browsers nor proxies send even two. */
const MAX_UNANSWERED = 16;

export class Connections {
  readonly #most: number;
  readonly #unanswered = new WeakMap<Socket, Set<ServerResponse>>();
  readonly #resting = new Set<Socket>();
  #open = 0;

  constructor(most: number) {
    this.#most = most;
  }

  /** A connection as it was accepted. */
  add(socket: Socket): void {
    this.#open++;
    socket.once("close", () => this.#open--);
    if (this.#open >= this.#most) this.#destroyOneResting();
  }

  /** False: one request more than the connection may send. `socket` is the connection itself, or TLS over it. */
  admits(socket: Socket, response: ServerResponse): boolean {
    const unanswered = this.#unanswered.get(socket) ?? this.#watch(socket);
    if (unanswered.size >= MAX_UNANSWERED) return false;
    this.#resting.delete(socket);
    unanswered.add(response);
    response.once("close", () => {
      unanswered.delete(response);
      if (unanswered.size === 0 && !socket.destroyed) this.#resting.add(socket);
    });
    return true;
  }

  isAnswering(socket: Socket): boolean {
    return (this.#unanswered.get(socket)?.size ?? 0) > 0;
  }

  #watch(socket: Socket): Set<ServerResponse> {
    const unanswered = new Set<ServerResponse>();
    this.#unanswered.set(socket, unanswered);
    socket.once("close", () => {
      this.#resting.delete(socket);
      // After an upgrade Node has forgotten those whose turn had not come; they would hold their places for ever.
      for (const response of unanswered) response.destroy();
    });
    return unanswered;
  }

  #destroyOneResting(): void {
    const [oldest] = this.#resting;
    if (oldest === undefined) return;
    this.#resting.delete(oldest);
    oldest.destroy();
  }
}

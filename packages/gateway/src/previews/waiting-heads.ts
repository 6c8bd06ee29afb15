/**
 * Connections that have not yet sent a whole head, in the order in which they came. Anybody can open these, so there is
 * room for only so many, and each one more takes the place of the oldest: who sends a head at once always gets in.
 */
import type { Socket } from "node:net";

export class WaitingHeads {
  readonly #most: number;
  readonly #oldestFirst = new Map<string, Socket>();

  constructor(most: number) {
    this.#most = most;
  }

  /** A connection as it was accepted: what a handshake of TLS takes counts as waiting. */
  add(socket: Socket): void {
    const key = keyOf(socket);
    this.#oldestFirst.set(key, socket);
    socket.once("close", () => {
      if (this.#oldestFirst.get(key) === socket) this.#oldestFirst.delete(key);
    });
    if (this.#oldestFirst.size > this.#most) this.#destroyOldest();
  }

  /** The head is whole. `socket` is the connection itself, or TLS over it. */
  done(socket: Socket): void {
    this.#oldestFirst.delete(keyOf(socket));
  }

  #destroyOldest(): void {
    for (const [key, socket] of this.#oldestFirst) {
      this.#oldestFirst.delete(key);
      socket.destroy();
      return;
    }
  }
}

/** The same for a connection and for TLS over it, and for no two that are open. */
function keyOf({ remoteAddress, remotePort, localAddress, localPort }: Socket): string {
  return `${remoteAddress} ${remotePort} ${localAddress} ${localPort}`;
}

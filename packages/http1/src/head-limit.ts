/**
 * A limit on connections that have not sent a whole head yet. Anyone can open such connections and leave them so.
 * Each one beyond the limit closes the oldest: a client that sends its head at once always gets in.
 */
import type { Socket } from "node:net";

export class HeadLimit {
  readonly #most: number;
  readonly #oldestFirst = new Map<string, Socket>();

  constructor(most: number) {
    this.#most = most;
  }

  /** Counts a connection that was just accepted, so that the time of a TLS handshake counts too. */
  add(socket: Socket): void {
    const key = keyOf(socket);
    this.#oldestFirst.set(key, socket);
    socket.once("close", () => {
      if (this.#oldestFirst.get(key) === socket) this.#oldestFirst.delete(key);
    });
    if (this.#oldestFirst.size > this.#most) this.#destroyOldest();
  }

  /** Call when the head is whole. `socket`: the connection, or TLS over it. */
  done(socket: Socket): void {
    this.#oldestFirst.delete(keyOf(socket));
  }

  #destroyOldest(): void {
    const [oldest] = this.#oldestFirst;
    if (!oldest) return;
    this.#oldestFirst.delete(oldest[0]);
    oldest[1].destroy();
  }
}

/** The key of a connection, which TLS over it shares and no other open connection has. */
function keyOf({ remoteAddress, remotePort, localAddress, localPort }: Socket): string {
  return `${remoteAddress} ${remotePort} ${localAddress} ${localPort}`;
}

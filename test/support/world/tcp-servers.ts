/** Runs the TCP servers of the world: each port listens on all addresses, and every connection is logged. */
import { once } from "node:events";
import { createServer, type Server, type Socket } from "node:net";
import type { OpenConnection, WorldLog } from "./events.ts";

const BLOCK = Buffer.alloc(64 * 1024, "x");

export class Connections {
  readonly #log: WorldLog;
  readonly #open = new Map<number, Socket>();
  readonly #places = new Map<number, { host: string; port: number }>();
  #lastId = 0;

  constructor(log: WorldLog) {
    this.#log = log;
  }

  accept(socket: Socket): void {
    const id = ++this.#lastId;
    const place = { host: socket.localAddress ?? "?", port: socket.localPort ?? 0 };
    this.#log.add({ kind: "accept", id, ...place });
    this.#open.set(id, socket);
    this.#places.set(id, place);
    socket.on("error", () => {});
    socket.once("close", () => {
      this.#open.delete(id);
      this.#places.delete(id);
      this.#log.add({ kind: "closed", id, ...place, bytes: socket.bytesRead });
    });
  }

  /** Resets all connections: nothing is sent again. */
  hangUp(): void {
    for (const socket of this.#open.values()) socket.resetAndDestroy();
  }

  list(): OpenConnection[] {
    return [...this.#open].map(([id, { bytesRead }]) => ({
      id,
      ...(this.#places.get(id) ?? { host: "?", port: 0 }),
      bytes: bytesRead,
    }));
  }
}

export async function listenTcp(
  connections: Connections,
  port: number,
  serve: (socket: Socket) => void,
): Promise<void> {
  const server: Server = createServer({ allowHalfOpen: false, noDelay: true }, (socket) => {
    connections.accept(socket);
    serve(socket);
  });
  server.listen({ host: "0.0.0.0", port, backlog: 4096 });
  await once(server, "listening");
}

export function echo(socket: Socket): void {
  socket.pipe(socket);
}

export function swallow(socket: Socket): void {
  socket.resume();
}

export function sendEndlessly(socket: Socket): void {
  socket.resume();
  const fill = () => {
    while (socket.writable && socket.write(BLOCK));
  };
  socket.on("drain", fill);
  fill();
}

/** A TCP proxy between a client and the service that can be cut and restored. */
import { type AddressInfo, createServer, connect as dial, type Socket } from "node:net";

export interface WeakLink {
  url: string;
  /** Resets all connections, and every new one until `mend`. */
  cut(): void;
  mend(): void;
  close(): Promise<void>;
}

export async function weakLink(url: string): Promise<WeakLink> {
  const { hostname, port } = new URL(url);
  const sockets = new Set<Socket>();
  let isCut = false;
  const server = createServer((near) => {
    if (isCut) return void near.resetAndDestroy();
    const far = dial(Number(port), hostname);
    for (const [socket, other] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(socket);
      socket.on("error", () => {});
      socket.once("close", () => {
        sockets.delete(socket);
        other.destroy();
      });
      socket.pipe(other);
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const reset = () => {
    for (const socket of sockets) socket.resetAndDestroy();
  };
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    cut: () => {
      isCut = true;
      reset();
    },
    mend: () => {
      isCut = false;
    },
    close: () => {
      reset();
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
}

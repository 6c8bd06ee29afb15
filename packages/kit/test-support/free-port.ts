/** Finds a port of this host without a listener, for a program that listens there only seconds later. */
import { randomInt } from "node:crypto";
import { createServer } from "node:net";

/** Range below the ephemeral ports of Linux, which an outgoing connection could take meanwhile. */
const PORTS = { from: 20_000, to: 32_000 };

export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(PORTS.from, PORTS.to);
    if (await isFree(port)) return port;
  }
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(false));
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });
}

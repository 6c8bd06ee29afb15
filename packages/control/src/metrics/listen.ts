/**
 * Serves `GET /metrics` on an address of its own. The metrics are about all organisations, so only the operator may
 * read them: the operator restricts who reaches the address. No credential is checked.
 */
import { createServer } from "node:http";
import type { Log } from "@vivarium/kit/log";
import type { Meter } from "./meter.ts";

/** Resolves once it listens, with the port and a way to stop. */
export async function listenForMetrics(
  { meter: { registry }, log }: { meter: Meter; log: Log },
  address: { host: string; port: number },
): Promise<{ port: number; close: () => Promise<void> }> {
  const server = createServer((request, response) => {
    request.resume();
    const path = request.url?.split("?", 1)[0];
    if (path !== "/metrics") return void response.writeHead(404).end("metrics are at /metrics\n");
    if (request.method !== "GET") return void response.writeHead(405, { allow: "GET" }).end();
    registry.metrics().then(
      (text) => response.writeHead(200, { "content-type": registry.contentType }).end(text),
      (err: unknown) => {
        log.warn({ err }, "metrics could not be collected");
        response.writeHead(500).end();
      },
    );
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject).listen(address.port, address.host, resolve);
  });
  const bound = server.address();
  return {
    port: typeof bound === "object" && bound ? bound.port : address.port,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

/** Runs the world's HTTP and HTTPS servers. */
import { readFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { PORTS, PUBLIC } from "./addresses.ts";
import { grpcOrigin } from "./grpc-origin.ts";
import { type Connections, listenTcp } from "./tcp-servers.ts";
import { answer, type Site, upgrade } from "./web-site.ts";

export interface Pair {
  certFile: string;
  keyFile: string;
}

export async function listenWeb(site: Site, connections: Connections, pair: Pair): Promise<void> {
  const plain = serving(site, createServer({ requestTimeout: 0 }));
  for (const port of PORTS.web)
    await listenTcp(connections, port, (socket) => plain.emit("connection", socket));
  const serveGrpc = grpcOrigin(site.log, pair);
  for (const port of PORTS.tls) {
    await listenTcp(connections, port, (socket) => {
      if (socket.localAddress === PUBLIC.grpc) return serveGrpc(socket);
      // One server per connection, so that the log has the requested name with the address of the connection.
      const server = secureServer(site, pair, socket.localAddress ?? "?");
      server.emit("connection", socket);
    });
  }
}

function secureServer(site: Site, { certFile, keyFile }: Pair, host: string): Server {
  const options = {
    cert: readFileSync(certFile),
    key: readFileSync(keyFile),
    SNICallback: (name: string, done: (error: null) => void) => {
      site.log.add({ kind: "sni", host, name });
      done(null);
    },
  };
  return serving(site, createTlsServer(options as object) as unknown as Server);
}

function serving(site: Site, server: Server): Server {
  server.on("request", (request, response) => answer(site, request, response));
  server.on("upgrade", (request, socket, head) => upgrade(site, request, socket, head));
  server.on("tlsClientError", () => {});
  return server;
}

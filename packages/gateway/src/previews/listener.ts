/** Creates the HTTP/1.1 server that visitors connect to, over TLS where the operator has configured a certificate. */
import { createServer, type Server, type ServerOptions, type ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo, Socket } from "node:net";
import { ConnectionLimit } from "@vivarium/http1/connection-limit";
import { type Handlers, listenGuarded } from "@vivarium/http1/guarded-server";
import { HeadLimit } from "@vivarium/http1/head-limit";
import { PeerLimit } from "@vivarium/http1/peer-limit";
import { wantsWebSocket } from "@vivarium/http1/strict-request";
import type { Log } from "@vivarium/kit/log";
import type { Pair } from "./certificate.ts";

const MAX_HEADER_BYTES = 16 * 1024;
/** How long the head of a request may take, and how long a connection may wait for its next request. */
const HEAD_LIMIT_MS = 20_000;
const IDLE_MS = 65_000;

/** Limits of open connections: in all, from one address, and without a complete request head. */
export interface Bounds {
  connections: number;
  ofOneAddress: number;
  heads: number;
}

/** Default limits: below the descriptors of one process, though each connection may need another one to its guest. */
const BOUNDS: Bounds = { connections: 8_192, ofOneAddress: 1_024, heads: 2_048 };

export type Answer = (...request: Parameters<Handlers["request"]>) => Promise<void>;

const OPTIONS: ServerOptions = {
  insecureHTTPParser: false,
  // A request without a Host gets the plain 404 page, like one for an unknown host.
  requireHostHeader: false,
  maxHeaderSize: MAX_HEADER_BYTES,
  headersTimeout: HEAD_LIMIT_MS,
  keepAliveTimeout: IDLE_MS,
  // No limit: a body may take any time while it makes progress (visitor-flows.ts).
  requestTimeout: 0,
  highWaterMark: 16 * 1024,
  noDelay: true,
  keepAlive: true,
  keepAliveInitialDelay: 30_000,
  shouldUpgradeCallback: wantsWebSocket,
};

export interface ListenerDeps {
  bounds?: Partial<Bounds>;
  /** Whether many visitors share this address: then it has no limit of its own. */
  isShared: (address: string) => boolean;
  log: Log;
}

export function createListener(
  pair: Pair | "none yet" | undefined,
  answer: Answer,
  { bounds, isShared, log }: ListenerDeps,
): Server {
  const most = { ...BOUNDS, ...bounds };
  const server = pair
    ? (createTlsServer({
        ...OPTIONS,
        ...(pair === "none yet" ? {} : pair),
        minVersion: "TLSv1.2",
        ALPNProtocols: ["http/1.1"],
      }) as Server)
    : createServer(OPTIONS);
  // No limit here: Node would silently drop the headers beyond it. strict-request.ts counts them.
  server.maxHeadersCount = 0;
  server.maxConnections = most.connections;
  const peers = new PeerLimit(most.ofOneAddress, isShared);
  const connections = new ConnectionLimit(most.connections);
  const waiting = new HeadLimit(most.heads);
  listenGuarded(server, log, {
    connection: (socket) => {
      if (!peers.admits(socket)) return void socket.destroy();
      connections.add(socket);
      waiting.add(socket);
    },
    // `Expect: 100-continue` is answered only once the request is admitted. Other expectations are ignored.
    request: (request, response, upgrade) => {
      const { socket } = request;
      waiting.done(socket);
      if (!connections.admits(socket, response)) return void socket.destroy();
      answer(request, response, upgrade).catch((error: unknown) => {
        log.error({ err: error }, "a visitor's connection is ended, because its request broke");
        socket.destroy();
      });
    },
    unreadable: refuseUnreadable,
  });
  return server;
}

export async function listen(
  server: Server,
  at: { host: string; port: number },
  log: Log,
): Promise<AddressInfo> {
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(at.port, at.host, () => resolve());
  });
  // Once it listens, an error means one connection that could not be accepted, for example without a free descriptor.
  server.on("error", (error) => log.warn({ err: error }, "a visitor could not be let in"));
  return server.address() as AddressInfo;
}

/** Answers an unreadable request with a bare status, unless an answer on the same connection has begun. */
function refuseUnreadable(
  error: NodeJS.ErrnoException,
  socket: Socket & { _httpMessage?: ServerResponse },
): void {
  const isAnswering = socket._httpMessage?.headersSent === true;
  if (!socket.writable || isAnswering || error.code === "ECONNRESET") return void socket.destroy();
  const line = error.code === "ERR_HTTP_REQUEST_TIMEOUT" ? "408 Request Timeout" : "400 Bad Request";
  socket.end(`HTTP/1.1 ${line}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`, () => socket.destroy());
}

/** The server that visitors connect to: HTTP/1.1, over TLS where the operator gave a certificate. */
import {
  createServer,
  type IncomingMessage,
  type Server,
  type ServerOptions,
  ServerResponse,
} from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo, Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { Pair } from "./certificate.ts";
import { Connections } from "./connections.ts";
import { MAX_HEADER_BYTES, wantsWebSocket } from "./hygiene.ts";
import { Peers } from "./peers.ts";
import { WaitingHeads } from "./waiting-heads.ts";

/** How long the head of a request may take, and how long a connection may wait for its next request. */
const HEAD_LIMIT_MS = 20_000;
const IDLE_MS = 65_000;

/** How many connections may be open, of these from one address, and of these without a whole head yet. */
export interface Bounds {
  connections: number;
  ofOneAddress: number;
  heads: number;
}

/** Below the descriptors of one process, each connection with one to its guest. */
const BOUNDS: Bounds = { connections: 8_192, ofOneAddress: 1_024, heads: 2_048 };

export type Answer = (
  request: IncomingMessage,
  response: ServerResponse,
  upgrade?: { head: Buffer },
) => Promise<void>;

const OPTIONS: ServerOptions = {
  insecureHTTPParser: false,
  // One without a Host gets the plain 404 page like all who name none of ours.
  requireHostHeader: false,
  maxHeaderSize: MAX_HEADER_BYTES,
  headersTimeout: HEAD_LIMIT_MS,
  keepAliveTimeout: IDLE_MS,
  // Bodies take as long as they move (flows.ts).
  requestTimeout: 0,
  highWaterMark: 16 * 1024,
  noDelay: true,
  keepAlive: true,
  keepAliveInitialDelay: 30_000,
  shouldUpgradeCallback: wantsWebSocket,
};

/** `isShared`: many visitors come from this address. */
export function createListener(
  pair: Pair | "none yet" | undefined,
  answer: Answer,
  { bounds, isShared }: { bounds?: Partial<Bounds>; isShared: (address: string) => boolean },
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
  // Counted by us: past a number of headers Node would drop the rest in silence.
  server.maxHeadersCount = 0;
  server.maxConnections = most.connections;
  const peers = new Peers(most.ofOneAddress, isShared);
  const connections = new Connections(most.connections);
  const waiting = new WaitingHeads(most.heads);
  server.on("connection", (socket) => {
    if (!peers.admits(socket)) return void socket.destroy();
    connections.add(socket);
    waiting.add(socket);
  });
  const onRequest = (request: IncomingMessage, response: ServerResponse, upgrade?: { head: Buffer }) => {
    waiting.done(request.socket);
    if (!connections.admits(request.socket, response)) return void request.socket.destroy();
    answer(request, response, upgrade).catch(() => request.socket.destroy());
  };
  server.on("request", (request, response) => onRequest(request, response));
  // Who wants to be told that a body is welcome is told so only once it is.
  server.on("checkContinue", (request, response) => onRequest(request, response));
  // Any other wish is none that has to be met, and Node would answer it without asking us.
  server.on("checkExpectation", (request, response) => onRequest(request, response));
  server.on("upgrade", (request: IncomingMessage, socket: Socket, head: Buffer) => {
    // An upgrade comes alone: its answer has no place beside another one, and Node would throw.
    if (connections.isAnswering(socket)) return void socket.destroy();
    onRequest(request, responseOver(socket, request), { head });
  });
  server.on("clientError", refuseUnreadable);
  return server;
}

export async function listen(server: Server, at: { host: string; port: number }): Promise<AddressInfo> {
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(at.port, at.host, () => resolve());
  });
  return server.address() as AddressInfo;
}

/** What the parser could not read gets one line, unless an answer is on its way to the same visitor. */
function refuseUnreadable(
  error: NodeJS.ErrnoException,
  socket: Duplex & { _httpMessage?: ServerResponse },
): void {
  const isAnswering = socket._httpMessage?.headersSent === true;
  if (!socket.writable || isAnswering || error.code === "ECONNRESET") return void socket.destroy();
  const line = error.code === "ERR_HTTP_REQUEST_TIMEOUT" ? "408 Request Timeout" : "400 Bad Request";
  socket.end(`HTTP/1.1 ${line}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`, () => socket.destroy());
}

/** Upgrades are refused with ordinary answers, over the connection that Node let go of. */
function responseOver(socket: Socket, request: IncomingMessage): ServerResponse {
  const response = new ServerResponse(request);
  response.shouldKeepAlive = false;
  response.assignSocket(socket);
  socket.on("error", () => socket.destroy());
  response.once("finish", () => {
    response.detachSocket(socket);
    socket.destroySoon();
  });
  return response;
}

/** Handles all events of an HTTP server that a client can cause. An exception in a handler ends that connection alone. */
import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Log } from "@vivarium/kit/log";
import { guarded } from "./guard.ts";
import { responseOver } from "./upgrade.ts";

export interface Handlers {
  connection?: (socket: Socket) => void;
  /** Called for all requests, with or without `Expect`. An upgrade too has a response, which ends its connection. */
  request: (request: IncomingMessage, response: ServerResponse, upgrade?: { head: Buffer }) => void;
  /** Called for an upgrade behind unanswered requests. Without a handler its connection is closed. */
  upgradeBehind?: (socket: Socket) => void;
  /** Called for a CONNECT. Without a handler Node closes the connection. */
  connect?: (socket: Socket) => void;
  /** Called for bytes that are not a request. */
  unreadable: (error: NodeJS.ErrnoException, socket: Socket) => void;
}

/** Options of an HTTP server whose clients nobody vouches for. */
export const UNTRUSTED_CLIENT_OPTIONS = {
  insecureHTTPParser: false,
  maxHeaderSize: 16 * 1024,
  /** The server refuses a missing Host itself, like a wrong one: Node's own refusal would be in no log. */
  requireHostHeader: false,
  keepAliveTimeout: 75_000,
  headersTimeout: 15_000,
  /** No limit: an upload may take any time. */
  requestTimeout: 0,
  connectionsCheckingInterval: 5_000,
};

export function listenGuarded(server: Server, log: Pick<Log, "error">, handlers: Handlers): void {
  const { connection, connect, unreadable, upgradeBehind = (socket) => socket.destroy() } = handlers;
  const onRequest = (request: IncomingMessage, response: ServerResponse, upgrade?: { head: Buffer }) => {
    // Without a listener the error would end the process.
    response.on("error", () => request.socket.destroy());
    handlers.request(request, response, upgrade);
  };
  /** Guards a handler of an event whose second argument is the socket. */
  const ownSocket = <First, Rest extends unknown[]>(handler: (...args: [First, Socket, ...Rest]) => void) =>
    guarded(log, handler, (...[, socket]) => void socket.destroy());
  const serve = guarded(
    log,
    (request: IncomingMessage, response: ServerResponse) => onRequest(request, response),
    ({ socket }) => socket.destroy(),
  );
  server.on("request", serve).on("checkContinue", serve).on("checkExpectation", serve);
  const onUpgrade = (request: IncomingMessage, socket: Socket, head: Buffer) => {
    const response = responseOver(socket, request);
    if (response) onRequest(request, response, { head });
    else upgradeBehind(socket);
  };
  server.on("upgrade", ownSocket(onUpgrade)).on("clientError", ownSocket(unreadable));
  const destroy = (socket: Socket) => void socket.destroy();
  if (connection) server.on("connection", guarded(log, connection, destroy));
  if (connect)
    server.on(
      "connect",
      ownSocket((_: IncomingMessage, socket: Socket) => connect(socket)),
    );
}

/**
 * Accepts WebSocket upgrades. An upgrade request is routed like all others, so every refusal is an ordinary answer.
 * Only a route that accepts the upgrade takes the connection over.
 */
import type { IncomingMessage, Server as NodeServer } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { LIMITS, WS_CLOSE } from "@vivarium/contract/api";
import { CLOSE_LIMITS, endGently } from "@vivarium/http1/close-gently";
import { pipelineOf } from "@vivarium/http1/pipelining";
import { wantsWebSocket } from "@vivarium/http1/strict-request";
import { responseOver } from "@vivarium/http1/upgrade";
import type { Log } from "@vivarium/kit/log";
import type { FastifyReply, FastifyRequest } from "fastify";
import { type ServerOptions, type WebSocket, WebSocketServer } from "ws";
import { ApiError } from "../errors/api-error.ts";

/**
 * For `fastify({http})`: only WebSocket requests are upgrades. An upgrade behind unanswered requests is handled as an
 * ordinary request, because for an upgrade Node removes the listeners that the earlier answers need.
 */
export const UPGRADE_OPTIONS = {
  shouldUpgradeCallback: (request: IncomingMessage) =>
    wantsWebSocket(request) && pipelineOf(request.socket).unanswered === 0,
};

const VERSION = "13";
const KEY = /^[A-Za-z0-9+/]{22}==$/;

/** The type declarations lack `closeTimeout`, the time limit of the closing handshake. */
const WEB_SOCKETS: ServerOptions & { closeTimeout: number } = {
  noServer: true,
  clientTracking: false,
  perMessageDeflate: false,
  maxPayload: LIMITS.webSocketMessageBytes,
  closeTimeout: CLOSE_LIMITS.ms,
};

export class Upgrades {
  readonly #log: Log;
  readonly #waiting = new WeakMap<IncomingMessage, { socket: Duplex; head: Buffer; requestId?: string }>();
  readonly #open = new Set<WebSocket>();
  readonly #webSockets = new WebSocketServer(WEB_SOCKETS);
  #isClosing = false;

  constructor({ log }: { log: Log }) {
    this.#log = log;
    this.#webSockets.on("headers", (headers, request) => {
      const requestId = this.#waiting.get(request)?.requestId;
      if (requestId !== undefined) headers.push(`X-Request-Id: ${requestId}`);
    });
  }

  /** Hands upgrades to the server's `request` event, with a response over the connection that Node released. */
  listenTo(nodeServer: NodeServer): void {
    nodeServer.on("upgrade", (request: IncomingMessage, socket: Duplex, head: Buffer) => {
      this.#waiting.set(request, { socket, head });
      handOver(nodeServer, request, socket);
    });
  }

  /** Refuses a malformed upgrade. Routes call it before they look anything up. */
  check(request: FastifyRequest, reply: FastifyReply): void {
    const { headers } = request.raw;
    if (!this.#waiting.has(request.raw)) {
      void reply.header("connection", "close");
      throw new ApiError(
        "validation",
        "Upgrade: this path is for WebSockets; send `Connection: Upgrade` and `Upgrade: websocket`, and nothing before it that is not answered yet",
      );
    }
    if (headers["sec-websocket-version"] !== VERSION) {
      void reply.header("sec-websocket-version", VERSION);
      throw new ApiError("validation", `Sec-WebSocket-Version: must be ${VERSION}`);
    }
    if (!KEY.test(headers["sec-websocket-key"] ?? "")) {
      throw new ApiError("validation", "Sec-WebSocket-Key: must be 16 bytes in base64");
    }
    if (headers["transfer-encoding"] !== undefined || (headers["content-length"] ?? "0") !== "0") {
      throw new ApiError("validation", "request body: an upgrade has none");
    }
  }

  /** Answers 101 and returns the WebSocket. Throws when the client has left, or the server shuts down. */
  async accept(request: FastifyRequest, reply: FastifyReply): Promise<WebSocket> {
    const waiting = this.#waiting.get(request.raw);
    if (!waiting || waiting.socket.destroyed || this.#isClosing) throw clientLeft();
    waiting.requestId = request.id;
    // No subprotocol is negotiated: the offer is ignored.
    delete request.raw.headers["sec-websocket-protocol"];
    reply.hijack();
    const open = request.openRequest;
    if (open) reply.raw.off("close", open.isOver);
    reply.raw.detachSocket(waiting.socket as Socket);
    waiting.socket.once("close", () => open?.isOver());
    const webSocket = await this.#handshake(request.raw, waiting);
    if (open) open.end = () => closeForCredential(webSocket);
    this.#keep(webSocket);
    logConnection(request, webSocket);
    return webSocket;
  }

  /** For shutdown: closes all WebSockets, and cuts those whose client does not answer. */
  async close(): Promise<void> {
    this.#isClosing = true;
    const all = [...this.#open];
    for (const webSocket of all) webSocket.close(WS_CLOSE.goingAway, "the server is shutting down");
    const late = setTimeout(() => {
      for (const webSocket of all) webSocket.terminate();
    }, CLOSE_LIMITS.ms);
    await Promise.all(all.map(closed));
    clearTimeout(late);
  }

  #handshake(request: IncomingMessage, { socket, head }: { socket: Duplex; head: Buffer }) {
    return new Promise<WebSocket>((resolve, reject) => {
      const onClose = () => reject(clientLeft());
      socket.once("close", onClose);
      this.#webSockets.handleUpgrade(request, socket, head, (webSocket) => {
        socket.off("close", onClose);
        resolve(webSocket);
      });
    });
  }

  #keep(webSocket: WebSocket): void {
    this.#open.add(webSocket);
    // After a protocol error of the peer, ws has closed the connection with the code of the error.
    webSocket.on("error", (err) => this.#log.debug({ err }, "a WebSocket failed"));
    webSocket.once("close", () => this.#open.delete(webSocket));
  }
}

function closeForCredential(webSocket: WebSocket): void {
  webSocket.close(WS_CLOSE.policyViolation, "the credential was revoked or has expired");
  const late = setTimeout(() => webSocket.terminate(), CLOSE_LIMITS.ms);
  webSocket.once("close", () => clearTimeout(late));
}

/** Hands a request whose connection Node has released to the server's `request` event. */
export function handOver(nodeServer: NodeServer, request: IncomingMessage, socket: Duplex): void {
  const response = responseOver(socket, request, endGently);
  if (response) nodeServer.emit("request", request, response);
  else socket.destroy();
}

/** Logs the opening and the end of a WebSocket, with the caller and route as in the request log. */
function logConnection(request: FastifyRequest, webSocket: WebSocket): void {
  const openedAt = performance.now();
  const { url: route } = request.routeOptions;
  const who = { org_id: request.principal?.orgId, key_id: request.principal?.credentialId };
  request.log.info({ method: request.method, route, status: 101, ...who }, "upgraded");
  webSocket.once("close", (code) =>
    request.log.info({ route, code, elapsed_ms: Math.round(performance.now() - openedAt), ...who }, "closed"),
  );
}

function clientLeft(): Error {
  return new Error("the client left before its connection was upgraded");
}

function closed(webSocket: WebSocket): Promise<void> {
  return new Promise((resolve) => {
    if (webSocket.readyState === webSocket.CLOSED) resolve();
    else webSocket.once("close", () => resolve());
  });
}

/** Serves HTTP/1.1 over the TLS connections of guests to bound origins. */
import {
  createServer,
  type IncomingMessage,
  type Server,
  type ServerResponse,
  STATUS_CODES,
} from "node:http";
import type { Duplex } from "node:stream";
import { sendHead } from "@vivarium/http1/answer-head";
import { leaveUnread } from "@vivarium/http1/close-gently";
import { listenGuarded, UNTRUSTED_CLIENT_OPTIONS } from "@vivarium/http1/guarded-server";
import { type Header, headerPairs, valuesOf } from "@vivarium/http1/headers";
import { pipelineOf } from "@vivarium/http1/pipelining";
import { findBadFraming, hasBody } from "@vivarium/http1/strict-request";
import type { Log } from "@vivarium/kit/log";
import { type GuestAnswer, type GuestRequest, refusalHeaders } from "./guest-request.ts";
import { refusal } from "./judge-request.ts";
import { refusalBody } from "./refusal-body.ts";

const OPTIONS = {
  ...UNTRUSTED_CLIENT_OPTIONS,
  /** An upgrade stays an ordinary request, which is refused. */
  shouldUpgradeCallback: () => false,
};

/**
 * Returns a server without a listener: connections are handed to it. `serve` gets each request with its connection, one at a
 * time: a request that was sent ahead is judged when it is sent on, not before.
 */
export function createHttp1(
  { log, idleMs, headMs }: { log: Log; idleMs: number; headMs: number },
  serve: (socket: Duplex, request: GuestRequest) => void,
): Server {
  const server = createServer({
    ...OPTIONS,
    headersTimeout: headMs,
    connectionsCheckingInterval: headMs / 3,
  });
  server.timeout = idleMs;
  const answered = new WeakMap<Duplex, Promise<void>>();
  // No limit on their number, only on their bytes: Node would drop the rest, and a different request would be judged.
  server.maxHeadersCount = 0;
  // Node checks the time limits of heads for servers that listen.
  server.emit("listening");
  listenGuarded(server, log, {
    request: (request, response) => {
      const { socket } = request;
      if (!pipelineOf(socket).add(response)) return void socket.destroy();
      const guestRequest = toGuestRequest(request, response);
      const before = answered.get(socket);
      const over = new Promise<void>((resolve) => guestRequest.answer.onceOver(resolve));
      answered.set(socket, over);
      if (before !== undefined) void before.then(() => serve(socket, guestRequest));
      else serve(socket, guestRequest);
    },
    connect: (socket) => refuseUnread(socket, "CONNECT is not served"),
    unreadable: (error, socket) => {
      if (error.code === "ECONNRESET") socket.destroy();
      else refuseUnread(socket, "the request cannot be read");
    },
  });
  return server;
}

function toGuestRequest(request: IncomingMessage, response: ServerResponse): GuestRequest {
  const headers = headerPairs(request.rawHeaders);
  const isOldVersion = request.httpVersion !== "1.1" ? "HTTP/1.1 is expected" : undefined;
  request.on("error", () => {});
  return {
    method: request.method ?? "",
    target: request.url ?? "",
    authorities: valuesOf(headers, "host"),
    headers,
    badFraming: isOldVersion ?? findBadFraming(request.httpVersion, headers),
    body: request,
    hasBody: hasBody(request),
    answer: new Http1Answer(request, response),
  };
}

class Http1Answer implements GuestAnswer {
  readonly to: ServerResponse;
  readonly #request: IncomingMessage;

  constructor(request: IncomingMessage, response: ServerResponse) {
    this.#request = request;
    this.to = response;
    response.sendDate = false;
  }

  get isOpen(): boolean {
    return !this.to.headersSent && !this.to.destroyed && !this.#request.socket.destroyed;
  }

  welcome(): void {
    this.to.writeContinue();
  }

  sendHead(status: number, headers: readonly Header[], isLast: boolean): void {
    sendHead(this.to, status, headers);
    if (isLast) this.to.end();
  }

  end(trailers: readonly Header[]): void {
    if (trailers.length > 0) this.to.addTrailers(trailers.map((pair): [string, string] => [...pair]));
    this.to.end();
    this.#leaveUnread();
  }

  refuse(status: number, body: string): void {
    const close: Header[] = this.#request.complete ? [] : [["connection", "close"]];
    this.to.writeHead(status, [...refusalHeaders(body), ...close].flat());
    this.to.end(body);
    this.#leaveUnread();
  }

  cut(): void {
    this.#request.socket.destroy();
  }

  onceOver(callback: () => void): void {
    this.to.once("close", callback);
  }

  /** The rest of a body that is not read any more. */
  #leaveUnread(): void {
    if (this.#request.complete) return;
    this.to.once("close", () => leaveUnread(this.#request));
  }
}

/** Answers where Node has no response object. Cuts the connection while an answer is in flight. */
function refuseUnread(socket: Duplex, why: string): void {
  if (pipelineOf(socket).unanswered > 0 || !socket.writable) return void socket.destroy();
  const refused = refusal("connection_request_invalid", why);
  const body = refusalBody(refused);
  const lines = [...refusalHeaders(body), ["connection", "close"]].map(
    ([name, value]) => `${name}: ${value}\r\n`,
  );
  socket.end(
    `HTTP/1.1 ${refused.status} ${STATUS_CODES[refused.status]}\r\n${lines.join("")}\r\n${body}`,
    () => socket.destroy(),
  );
}

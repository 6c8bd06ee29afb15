/** Forwards one request to its server and the answer to the client. A fault of either side ends this exchange only. */
import {
  type ClientRequest,
  type IncomingMessage,
  request as openRequest,
  type RequestOptions,
  type ServerResponse,
} from "node:http";
import type { Socket } from "node:net";
import type { Log } from "@vivarium/kit/log";
import { grantsWebSocket, isAnswer, lengthLast, sendConsent, sendHead } from "./answer-head.ts";
import { leaveUnread } from "./close-gently.ts";
import { copyBody } from "./copy-body.ts";
import { type Guard, guarded } from "./guard.ts";
import { type Header, valuesOf } from "./headers.ts";

/** Most bytes of all headers of an answer together. */
const MAX_ANSWER_HEADER_BYTES = 64 * 1024;
const MAX_INTERIM_ANSWERS = 16;

/** One request and how its caller wants it forwarded. */
export interface Exchange {
  request: IncomingMessage;
  response: ServerResponse;
  log: Log;
  path: string;
  /** Headers for the server. If Expect is among them the client gets the server's `100 Continue`, else ours at once. */
  headers: readonly Header[];
  /** How the server is reached. */
  connection: RequestOptions;
  /** The request asks for a WebSocket; `head` holds the bytes that the client sent behind it. */
  upgrade?: { head: Buffer };
  /** Called with a valid answer. Returns the headers for the client. */
  onAnswer: (answer: IncomingMessage) => readonly Header[];
  /** Called when the server consents to the WebSocket. From here on both sockets belong to the callee. */
  onConsent: (server: Socket) => void;
  /** Called once if there is no valid answer. If part of one was sent, the callee must end the connection. */
  fail: (failure: Failure) => void;
  /** Called when `fail` threw as well; ends the connection. */
  cut: () => void;
}

export type Failure =
  /** Node refuses to write the request. */
  { why: "unwritable" } | { why: "bad answer" } | { why: "no answer"; error: Error; isReused: boolean };

/** Undefined when the request cannot be written; `fail` was called then. */
export function forward(exchange: Exchange): Forwarding | undefined {
  const upstream = open(exchange);
  if (upstream) return new Forwarding(exchange, upstream);
  exchange.fail({ why: "unwritable" });
  return undefined;
}

class Forwarding {
  readonly upstream: ClientRequest;
  readonly #exchange: Exchange;
  /** Set once events of the server are ignored: it failed, was given up, or has a WebSocket. */
  #isOver = false;
  readonly #guard: Guard = (handler) =>
    guarded(
      this.#exchange.log,
      handler,
      () => (this.#isOver ? this.#exchange.cut() : this.#fail({ why: "bad answer" })),
      () => this.#exchange.cut(),
    );

  constructor(exchange: Exchange, upstream: ClientRequest) {
    this.#exchange = exchange;
    this.upstream = upstream;
    this.#hearServer();
    this.#hearClient();
  }

  /** Ends the request to the server. The client gets nothing. */
  destroy(): void {
    this.#isOver = true;
    this.upstream.destroy();
  }

  #fail(failure: Failure): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#exchange.fail(failure);
    this.upstream.destroy();
  }

  /** Whether the server's events count: its parser also emits those of bytes behind the end of this request. */
  get #isHeard(): boolean {
    return !this.#isOver && !this.upstream.destroyed && !this.#exchange.response.headersSent;
  }

  #hearServer(): void {
    const { upstream } = this;
    let interim = 0;
    // Without a limit a server could hold the client for ever with interim answers.
    const onInterim = () => {
      interim += 1;
      if (interim > MAX_INTERIM_ANSWERS) this.#fail({ why: "bad answer" });
    };
    upstream.on("information", this.#guard(onInterim));
    upstream.on("response", this.#guard(this.#onAnswer));
    upstream.on("upgrade", this.#guard(this.#onUpgrade));
    const onError = (error: Error) => {
      // Once an answer has begun, its own end says whether it was whole.
      if (this.#exchange.response.headersSent) return;
      this.#fail({ why: "no answer", error, isReused: upstream.reusedSocket });
    };
    upstream.on("error", this.#guard(onError));
  }

  readonly #onAnswer = (answer: IncomingMessage): void => {
    if (!this.#isHeard) return;
    if (!isAnswer(answer)) {
      this.#fail({ why: "bad answer" });
      return;
    }
    const { response, request, upgrade, onAnswer } = this.#exchange;
    answer.on("error", () => breakOff(response));
    answer.once("close", () => {
      if (!answer.complete) breakOff(response);
    });
    const headers = onAnswer(answer);
    // Node has released the connection: without this a client that leaves is not noticed.
    if (upgrade) request.socket.once("end", () => request.socket.destroy()).resume();
    sendHead(response, answer.statusCode ?? 502, headers);
    copyBody(answer, response, this.#guard);
  };

  readonly #onUpgrade = (answer: IncomingMessage, server: Socket, first: Buffer): void => {
    const { request, response, upgrade, onAnswer, onConsent } = this.#exchange;
    // Node has removed its own listeners: an error without any would end the process.
    server.on("error", () => server.destroy());
    if (!this.#isHeard || !upgrade || !grantsWebSocket(answer)) {
      server.destroy();
      this.#fail({ why: "bad answer" });
      return;
    }
    const headers = onAnswer(answer).filter(([name]) => name.toLowerCase() !== "content-length");
    this.#isOver = true;
    const client = request.socket;
    server.removeAllListeners("timeout");
    response.detachSocket(client);
    sendConsent(client, headers);
    client.write(first);
    server.write(upgrade.head);
    onConsent(server);
  };

  #hearClient(): void {
    const { upstream } = this;
    const { request, response, headers, upgrade } = this.#exchange;
    // Without listeners these errors would end the process.
    request.on("error", () => upstream.destroy());
    response.on("error", () => upstream.destroy());
    if (upgrade) return void upstream.end();
    if (/\b100-continue\b/i.test(request.headers.expect ?? "")) {
      const welcome = this.#guard(() => response.writeContinue());
      if (valuesOf(headers, "expect").length === 0) welcome();
      else upstream.once("continue", welcome);
    }
    response.once("close", () => {
      if (!response.writableFinished) upstream.destroy();
      else if (upstream.closed && !request.complete) leaveUnread(request);
    });
    // A server may answer and close before it has read the body.
    upstream.once("close", () => {
      if (response.closed && !request.complete) leaveUnread(request);
    });
    // The body was read already when the request is forwarded a second time.
    if (request.readableEnded) upstream.end();
    else copyBody(request, upstream, this.#guard);
  }
}

export type { Forwarding };

function open({ request, path, headers, connection }: Exchange): ClientRequest | undefined {
  try {
    const upstream = openRequest({
      ...connection,
      method: request.method,
      path,
      headers: lengthLast(headers),
      maxHeaderSize: MAX_ANSWER_HEADER_BYTES,
      insecureHTTPParser: false,
    });
    // No limit: Node would silently drop headers past it. `maxHeaderSize` bounds their bytes.
    upstream.maxHeadersCount = 0;
    return upstream;
  } catch {
    return undefined;
  }
}

/** Ends the connection once this response may be sent: before that it carries answers to earlier requests. */
function breakOff(response: ServerResponse): void {
  if (response.socket) response.destroy();
  else response.once("socket", (client: Socket) => client.destroy());
}

/**
 * Requests that Node would answer by itself with a bare status, or with silence. Those that name a method and a path go
 * the way of all others; those that are no HTTP get the same envelope, written by hand.
 */
import {
  type IncomingMessage,
  type Server as NodeServer,
  type ServerResponse,
  STATUS_CODES,
} from "node:http";
import type { Duplex } from "node:stream";
import { LIMITS } from "@vivarium/contract/api";
import { endGently } from "@vivarium/http1/close-gently";
import type { Log } from "@vivarium/kit/log";
import type { FastifyInstance } from "fastify";
import { ApiError } from "./api-error.ts";
import { TOO_SLOW } from "./body-pace.ts";
import { renderedError } from "./render-error.ts";
import { newRequestId } from "./request-id.ts";
import { timesSent } from "./times-sent.ts";
import { afterTurns, breakOff, isCutOff } from "./turns.ts";
import { handOver } from "./upgrades.ts";

type Connection = Duplex & { _httpMessage?: ServerResponse };

/** The headers of a request must arrive within this time. */
const HEADERS_ARRIVE_WITHIN_MS = 60_000;

/** For `fastify({http})`: a missing Host is refused by `refuseUnusableHeaders`, which has an envelope. */
export const NODE_SERVER_OPTIONS = {
  maxHeaderSize: LIMITS.headerBytes,
  requireHostHeader: false,
  headersTimeout: HEADERS_ARRIVE_WITHIN_MS,
};

/** Hands what Node keeps from its `request` event to that event. */
export function routeEverything(nodeServer: NodeServer): void {
  nodeServer.on("checkExpectation", (request, response) => nodeServer.emit("request", request, response));
  nodeServer.on("connect", (request: IncomingMessage, socket: Connection) => {
    handOver(nodeServer, request, socket);
  });
}

/** What HTTP lets a server refuse for its headers alone. A path that does not exist stays a 404. */
export function refuseUnusableHeaders(server: FastifyInstance): void {
  server.addHook("onRequest", async (request, reply) => {
    const { host, expect } = request.headers;
    if (request.is404) return;
    if (expect !== undefined && expect.toLowerCase() !== "100-continue") {
      // Whether the body follows is the client's choice, so what comes next on this connection cannot be told.
      void reply.header("connection", "close");
      throw new ApiError("validation", "Expect: must be 100-continue, or left out");
    }
    if (host === undefined && request.raw.httpVersion !== "1.0") {
      throw new ApiError("validation", "Host: is required in HTTP/1.1");
    }
    if (timesSent(request.raw, "host") > 1) throw new ApiError("validation", "Host: must be sent once");
    const encoding = request.headers["content-encoding"];
    if (encoding !== undefined && encoding.toLowerCase() !== "identity") {
      throw new ApiError("validation", "Content-Encoding: must be identity, or left out");
    }
  });
}

/**
 * For `fastify({clientErrorHandler})`: what arrived is no request, not a whole one, or too large a one. Whole requests
 * that came before it are answered before it.
 */
export function answerBrokenRequest(
  { log }: { log: Log },
  error: Error & { code?: string },
  socket: Connection,
): void {
  if (error.code === "ECONNRESET" || socket.destroyed || isCutOff(socket)) return;
  const isUnanswered = breakOff(socket);
  // Something follows what was to be the last of its connection. That one's answer ends it.
  if (error.code === "HPE_CLOSED_CONNECTION") return;
  afterTurns(socket, () => {
    if (!socket.writable || socket._httpMessage?.headersSent) return void socket.destroy();
    if (isUnanswered) socket.write(brokenAnswer(log, error));
    endGently(socket);
  });
}

function brokenAnswer(log: Log, error: Error & { code?: string }): string {
  const message = BROKEN[error.code ?? ""] ?? "the request is not valid HTTP/1.1";
  const { status, body } = renderedError(new ApiError("validation", message, { cause: error }));
  const requestId = newRequestId();
  const text = JSON.stringify(body);
  log.info({ request_id: requestId, status, reason: error.code }, "answered what is no request");
  return [
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
    "content-type: application/json; charset=utf-8",
    "cache-control: no-store",
    `x-request-id: ${requestId}`,
    `content-length: ${Buffer.byteLength(text)}`,
    "connection: close",
    "",
    text,
  ].join("\r\n");
}

const BROKEN: Record<string, string | undefined> = {
  HPE_HEADER_OVERFLOW: `headers: must be at most ${LIMITS.headerBytes} bytes together`,
  ERR_HTTP_REQUEST_TIMEOUT: `the headers must arrive within ${HEADERS_ARRIVE_WITHIN_MS / 1000} seconds`,
  [TOO_SLOW]: "request body: it arrives too slowly; at least 1024 bytes a second are expected",
};

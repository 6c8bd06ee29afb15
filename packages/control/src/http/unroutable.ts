/**
 * Answers the requests that Node does not hand to the framework with the same error body as all others.
 *
 * Node answers two Expect headers and a missing Host with a bare status, and CONNECT not at all: these are routed
 * like all other requests. Bytes that are not HTTP get an answer written by hand, after the answers to earlier
 * requests. Node alone sends its 400 for them at once, which a client takes for the answer to an earlier request.
 */
import {
  type IncomingMessage,
  type Server as NodeServer,
  type ServerResponse,
  STATUS_CODES,
} from "node:http";
import type { Duplex } from "node:stream";
import { LIMITS } from "@vivarium/contract/api";
import { TOO_SLOW } from "@vivarium/http1/body-rate";
import { endGently } from "@vivarium/http1/close-gently";
import { headerPairs, valuesOf } from "@vivarium/http1/headers";
import { pipelineOf } from "@vivarium/http1/pipelining";
import type { Log } from "@vivarium/kit/log";
import type { FastifyInstance } from "fastify";
import { ApiError } from "../errors/api-error.ts";
import { renderedError } from "./render-error.ts";
import { newRequestId } from "./request-id.ts";
import { breakOff, isCutOff } from "./turns.ts";
import { handOver } from "./upgrades.ts";

type Connection = Duplex & { _httpMessage?: ServerResponse };

/** The headers of a request must arrive within this time. */
const HEADERS_ARRIVE_WITHIN_MS = 30_000;

/** For `fastify({http})`. A missing Host is refused by `refuseUnusableHeaders`, with an error body. */
export const NODE_SERVER_OPTIONS = {
  maxHeaderSize: LIMITS.headerBytes,
  requireHostHeader: false,
  headersTimeout: HEADERS_ARRIVE_WITHIN_MS,
  // Node's own interval would let a client have as long again.
  connectionsCheckingInterval: 5_000,
};

/** Emits `request` also for unknown Expect headers and CONNECT, for which Node emits other events. */
export function routeEverything(nodeServer: NodeServer): void {
  nodeServer.on("checkExpectation", (request, response) => nodeServer.emit("request", request, response));
  nodeServer.on("connect", (request: IncomingMessage, socket: Connection) => {
    handOver(nodeServer, request, socket);
  });
}

/** Refuses requests by their Expect, Host and Content-Encoding headers. An unknown path stays a 404. */
export function refuseUnusableHeaders(server: FastifyInstance): void {
  server.addHook("onRequest", async (request, reply) => {
    const { host, expect } = request.headers;
    if (request.is404) return;
    if (expect !== undefined && expect.toLowerCase() !== "100-continue") {
      // The client may send the body or not, so whether the next bytes are a body or a request is unknown.
      void reply.header("connection", "close");
      throw new ApiError("validation", "Expect: must be 100-continue, or left out");
    }
    if (host === undefined && request.raw.httpVersion !== "1.0") {
      throw new ApiError("validation", "Host: is required in HTTP/1.1");
    }
    if (valuesOf(headerPairs(request.raw.rawHeaders), "host").length > 1)
      throw new ApiError("validation", "Host: must be sent once");
    const encoding = request.headers["content-encoding"];
    if (encoding !== undefined && encoding.toLowerCase() !== "identity") {
      throw new ApiError("validation", "Content-Encoding: must be identity, or left out");
    }
  });
}

/**
 * For `fastify({clientErrorHandler})`: answers bytes that are no valid request, an incomplete or too slow one, or one
 * with too long a head. Earlier complete requests are answered first.
 */
export function answerBrokenRequest(
  { log }: { log: Log },
  error: Error & { code?: string },
  socket: Connection,
): void {
  if (error.code === "ECONNRESET" || socket.destroyed || isCutOff(socket)) return;
  const isUnanswered = breakOff(socket);
  // The bytes follow the last request of the connection. The answer to that request ends the connection.
  if (error.code === "HPE_CLOSED_CONNECTION") return;
  pipelineOf(socket).whenAllAnswered(() => {
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

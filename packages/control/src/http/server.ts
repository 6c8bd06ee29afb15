/** The HTTP server of the public interface, without its routes: what holds for every endpoint. */
import { type ServerResponse, STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import { LIMITS } from "@vivarium/contract/api";
import type { Log } from "@vivarium/kit/log";
import { type FastifyBaseLogger, type FastifyReply, type FastifyRequest, fastify } from "fastify";
import type { ZodTypeProvider } from "fastify-type-provider-zod";
import type { Database } from "../db/pool.ts";
import { ApiError } from "./api-error.ts";
import { requireCredential } from "./authenticate.ts";
import { acceptJsonBodies } from "./body.ts";
import { documentApi } from "./openapi.ts";
import { renderError, renderedError } from "./render-error.ts";
import { requestId } from "./request-id.ts";
import { logRequests } from "./request-log.ts";
import { answerUnknownRoutes } from "./unknown-route.ts";
import { compileValidator } from "./validation.ts";

export type Server = Awaited<ReturnType<typeof createServer>>;

export async function createServer(deps: { db: Database; pepper: Buffer; log: Log; version: string }) {
  const server = fastify({
    loggerInstance: deps.log as FastifyBaseLogger,
    disableRequestLogging: true,
    requestIdLogLabel: "request_id",
    genReqId: requestId,
    requestIdHeader: false,
    exposeHeadRoutes: false,
    return503OnClosing: false,
    forceCloseConnections: "idle",
    bodyLimit: LIMITS.jsonBodyBytes,
    http: { maxHeaderSize: LIMITS.headerBytes },
    clientErrorHandler: (error, socket) => answerBrokenRequest(error, socket),
    frameworkErrors: renderError as (error: Error, request: FastifyRequest, reply: FastifyReply) => void,
  }).withTypeProvider<ZodTypeProvider>();

  server.setValidatorCompiler(compileValidator);
  // Records are built to their schema by typed code: checking them again would double the cost of a read.
  server.setSerializerCompiler(() => (answer) => JSON.stringify(answer));
  server.setErrorHandler(renderError);
  server.addHook("onRequest", (request, reply, done) => {
    void reply.header("x-request-id", request.id).header("cache-control", "no-store");
    done();
  });
  requireCredential(server, deps);
  answerUnknownRoutes(server);
  acceptJsonBodies(server);
  logRequests(server);
  await documentApi(server, deps.version);
  return server;
}

/** Requests that are no HTTP never reach a route; they get the same envelope. */
function answerBrokenRequest(
  error: Error & { code?: string },
  socket: Socket & { _httpMessage?: ServerResponse },
): void {
  if (error.code === "ECONNRESET" || socket.destroyed) return;
  if (!socket.writable || socket._httpMessage?.headersSent) return void socket.destroy();
  const message =
    error.code === "HPE_HEADER_OVERFLOW"
      ? `headers: must be at most ${LIMITS.headerBytes} bytes together`
      : "the request is not valid HTTP/1.1";
  const { status, body } = renderedError(new ApiError("validation", message, { cause: error }));
  const text = JSON.stringify(body);
  socket.end(
    [
      `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
      "content-type: application/json; charset=utf-8",
      "cache-control: no-store",
      `content-length: ${Buffer.byteLength(text)}`,
      "connection: close",
      "",
      text,
    ].join("\r\n"),
  );
}

/** The HTTP server of the public interface, without its routes: what holds for every endpoint. */
import { type ServerResponse, STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import { LIMITS } from "@vivarium/contract/api";
import type { Log } from "@vivarium/kit/log";
import {
  type FastifyBaseLogger,
  type FastifyReply,
  type FastifyRequest,
  fastify,
  LogController,
} from "fastify";
import type { ZodTypeProvider } from "fastify-type-provider-zod";
import type { Authenticator } from "../access/authenticate.ts";
import { ApiError } from "./api-error.ts";
import { requireCredential } from "./authenticate.ts";
import { acceptJsonBodies } from "./body.ts";
import { documentApi } from "./openapi.ts";
import { renderError, renderedError } from "./render-error.ts";
import { newRequestId, requestId } from "./request-id.ts";
import { logRequests } from "./request-log.ts";
import { answerUnknownRoutes } from "./unknown-route.ts";
import { compileValidator } from "./validation.ts";

export type Server = Awaited<ReturnType<typeof createServer>>;

export async function createServer(deps: { authenticator: Authenticator; log: Log; version: string }) {
  const server = fastify({
    loggerInstance: deps.log as FastifyBaseLogger,
    logController: new LogController({ disableRequestLogging: true, requestIdLogLabel: "request_id" }),
    genReqId: requestId,
    requestIdHeader: false,
    exposeHeadRoutes: false,
    return503OnClosing: false,
    forceCloseConnections: "idle",
    bodyLimit: LIMITS.jsonBodyBytes,
    // How long a request may take to arrive, not how long it may run.
    requestTimeout: REQUEST_ARRIVES_WITHIN_MS,
    http: { maxHeaderSize: LIMITS.headerBytes },
    clientErrorHandler: (error, socket) => answerBrokenRequest(error, socket),
    routerOptions: { maxParamLength: LIMITS.headerBytes },
    frameworkErrors: (error, request, reply) => void answerUnroutable(deps, error, request, reply),
  }).withTypeProvider<ZodTypeProvider>();

  server.setValidatorCompiler(compileValidator);
  // Records are built to their schema by typed code: checking them again would double the cost of a read.
  server.setSerializerCompiler(() => (answer) => JSON.stringify(answer));
  server.setErrorHandler(renderError);
  server.addHook("onRequest", (request, reply, done) => {
    addCommonHeaders(request, reply);
    done();
  });
  requireCredential(server, deps);
  answerUnknownRoutes(server);
  acceptJsonBodies(server);
  logRequests(server);
  await documentApi(server, deps.version);
  return server;
}

const REQUEST_ARRIVES_WITHIN_MS = 60_000;

function addCommonHeaders(request: FastifyRequest, reply: FastifyReply): void {
  void reply.header("x-request-id", request.id).header("cache-control", "no-store");
}

/** A URL that cannot be decoded reaches no hook and no route; the order of checks holds for it too. */
async function answerUnroutable(
  deps: { authenticator: Authenticator },
  error: Error,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<void> {
  addCommonHeaders(request, reply);
  const reason = await deps.authenticator.authenticate(request.headers.authorization).then(
    () => error,
    (refusal: unknown) => refusal,
  );
  renderError(reason, request, reply);
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
      `x-request-id: ${newRequestId()}`,
      `content-length: ${Buffer.byteLength(text)}`,
      "connection: close",
      "",
      text,
    ].join("\r\n"),
  );
}

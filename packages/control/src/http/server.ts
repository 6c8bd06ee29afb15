/** The HTTP server of the public interface, without its routes: the rules for every endpoint. */
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
import type { Meter } from "../metrics/meter.ts";
import {
  authenticate,
  type CredentialDeps,
  refuseWritesOfReaders,
  requireCredential,
} from "./authenticate.ts";
import { acceptJsonBodies } from "./body.ts";
import { holdTokensToTheirSession } from "./capabilities.ts";
import { giveUpSlowBodies } from "./minimum-body-rate.ts";
import { type OpenRequests, trackOpenRequests } from "./open-requests.ts";
import { documentApi } from "./openapi.ts";
import { holdOperatorsToTheirRoutes } from "./operator.ts";
import { parseQuery, refuseUnreadableQuery } from "./query.ts";
import { renderError } from "./render-error.ts";
import { requestId } from "./request-id.ts";
import { observeRequests } from "./request-log.ts";
import { inTurn, takeTurns } from "./turns.ts";
import { answerUnknownRoutes } from "./unknown-route.ts";
import { boundUnreadAnswers } from "./unread-answers.ts";
import {
  answerBrokenRequest,
  NODE_SERVER_OPTIONS,
  refuseUnusableHeaders,
  routeEverything,
} from "./unroutable.ts";
import { UPGRADE_OPTIONS, type Upgrades } from "./upgrades.ts";
import { compileValidator } from "./validation.ts";

export type Server = Awaited<ReturnType<typeof createServer>>;

interface ServerDeps extends CredentialDeps {
  openRequests: OpenRequests;
  upgrades: Upgrades;
  log: Log;
  meter: Meter;
  version: string;
}

export async function createServer(deps: ServerDeps) {
  const server = fastify({
    loggerInstance: deps.log as FastifyBaseLogger,
    logController: new LogController({ disableRequestLogging: true, requestIdLogLabel: "request_id" }),
    genReqId: requestId,
    requestIdHeader: false,
    exposeHeadRoutes: false,
    return503OnClosing: false,
    forceCloseConnections: "idle",
    bodyLimit: LIMITS.jsonBodyBytes,
    // `headersTimeout` limits headers, `giveUpSlowBodies` limits bodies.
    requestTimeout: 0,
    http: { ...NODE_SERVER_OPTIONS, ...UPGRADE_OPTIONS },
    clientErrorHandler: (error, socket) => answerBrokenRequest(deps, error, socket),
    routerOptions: { maxParamLength: LIMITS.headerBytes, querystringParser: parseQuery },
    frameworkErrors: (error, request, reply) => void answerUnroutable(deps, error, request, reply),
  }).withTypeProvider<ZodTypeProvider>();

  routeEverything(server.server);
  deps.upgrades.listenTo(server.server);
  // Closing the server waits for WebSockets, and only this ends them.
  server.addHook("preClose", () => deps.upgrades.close());
  server.setValidatorCompiler(compileValidator);
  // Records are built to their schema by typed code: checking them again would double the cost of a read.
  server.setSerializerCompiler(() => (answer) => JSON.stringify(answer));
  server.decorateRequest("refusal", null);
  server.setErrorHandler(renderError);
  takeTurns(server);
  server.addHook("onRequest", async (request, reply) => addCommonHeaders(request, reply));
  requireCredential(server, deps);
  trackOpenRequests(server, deps);
  answerUnknownRoutes(server);
  refuseWritesOfReaders(server);
  holdTokensToTheirSession(server);
  holdOperatorsToTheirRoutes(server);
  refuseUnusableHeaders(server);
  refuseUnreadableQuery(server);
  giveUpSlowBodies(server);
  boundUnreadAnswers(server);
  acceptJsonBodies(server);
  observeRequests(server, deps.meter);
  await documentApi(server, deps.version);
  return server;
}

function addCommonHeaders(request: FastifyRequest, reply: FastifyReply): void {
  void reply.header("x-request-id", request.id).header("cache-control", "no-store");
}

/** Answers a URL that cannot be decoded. No hook runs for it, so their checks are repeated here in their order. */
async function answerUnroutable(
  deps: CredentialDeps,
  error: Error,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<void> {
  await new Promise<void>((resolve) => inTurn(reply, resolve));
  addCommonHeaders(request, reply);
  const reason = await authenticate(deps, request).then(
    () => error,
    (refusal: unknown) => refusal,
  );
  renderError(reason, request, reply);
}

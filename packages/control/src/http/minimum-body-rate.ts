/** Gives up requests whose bodies arrive more slowly than the minimum rate. */
import type { IncomingMessage } from "node:http";
import { Socket } from "node:net";
import { MIN_BODY_RATE, TOO_SLOW, watchBodyRate } from "@vivarium/http1/body-rate";
import { CLOSE_LIMITS, type CloseLimits } from "@vivarium/http1/close-gently";
import { hasBody } from "@vivarium/http1/strict-request";
import type { FastifyInstance } from "fastify";

declare module "fastify" {
  interface FastifyContextConfig {
    /** The route reads the body itself, as fast as its receiver takes it. */
    takesRawBody?: boolean;
  }
}

export function giveUpSlowBodies(
  server: FastifyInstance,
  rate = MIN_BODY_RATE,
  closeLimits = CLOSE_LIMITS,
): void {
  server.addHook("onRequest", (request, reply, done) => {
    const { raw, routeOptions } = request;
    // A request that was injected has no connection, and none of its bytes is late.
    if (hasBody(raw) && raw.socket instanceof Socket) {
      if (routeOptions.config.takesRawBody) reply.raw.once("finish", () => dropRest(raw, closeLimits));
      else watchBodyRate(raw, rate, (socket) => refuseRest(server, socket));
    }
    done();
  });
}

/** Emits `clientError`, whose handler answers and ends the connection. */
function refuseRest(server: FastifyInstance, socket: Socket): void {
  const error = Object.assign(new Error("the body arrives too slowly"), { code: TOO_SLOW });
  server.server.emit("clientError", error, socket);
}

/**
 * Lets a client that was answered early finish its body, because it may read the answer only after that. Cuts the
 * connection if it is silent for `ms`, or still sends after `inAllMs`.
 */
function dropRest(raw: IncomingMessage, { ms, inAllMs }: CloseLimits): void {
  if (raw.complete) return;
  const cutOff = () => raw.socket.destroy();
  watchBodyRate(raw, { windowMs: ms, bytes: 1 }, cutOff);
  const late = setTimeout(cutOff, inAllMs).unref();
  raw.once("close", () => clearTimeout(late));
}

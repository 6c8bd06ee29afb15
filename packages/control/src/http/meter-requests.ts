import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { Meter } from "../metrics/meter.ts";

export function meterRequests(server: FastifyInstance, meter: Meter): void {
  const count = ({ method, routeOptions }: FastifyRequest, reply: FastifyReply, status: string) =>
    meter.answered({ method, route: routeOptions.url ?? "(no route)", status, ms: reply.elapsedTime });
  server.addHook("onRequest", (request, reply, done) => {
    // `onResponse` is not called for an answer that does not end because its client left.
    reply.raw.once("close", () => {
      if (!reply.raw.writableFinished) count(request, reply, "left");
    });
    done();
  });
  server.addHook("onResponse", (request, reply, done) => {
    count(request, reply, String(reply.statusCode));
    done();
  });
}

import type { FastifyInstance } from "fastify";
import type { Meter } from "../metrics/meter.ts";

export function meterRequests(server: FastifyInstance, meter: Meter): void {
  server.addHook("onResponse", (request, reply, done) => {
    const { method, routeOptions } = request;
    const route = routeOptions.url ?? "(no route)";
    meter.answered({ method, route, status: reply.statusCode, ms: reply.elapsedTime });
    done();
  });
}

import type { FastifyInstance } from "fastify";

/** One line per answered request: caller, route, status, duration. Never a header, a body or a query. */
export function logRequests(server: FastifyInstance): void {
  server.addHook("onResponse", (request, reply, done) => {
    request.log.info(
      {
        method: request.method,
        route: request.routeOptions.url ?? "(no route)",
        status: reply.statusCode,
        elapsed_ms: Math.round(reply.elapsedTime),
        org_id: request.principal?.orgId,
        key_id: request.principal?.keyId,
      },
      "answered",
    );
    done();
  });
}

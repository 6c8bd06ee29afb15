import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { Meter } from "../metrics/meter.ts";

/** Counts every request, and logs a line per answer: caller, route, status, duration; no header, no body, no query. */
export function observeRequests(server: FastifyInstance, meter: Meter): void {
  const observe = ({ method, routeOptions }: FastifyRequest, reply: FastifyReply, status: string) => {
    const route = routeOptions.url ?? "(no route)";
    meter.answered({ method, route, status, ms: reply.elapsedTime });
    return { method, route };
  };
  server.addHook("onRequest", (request, reply, done) => {
    // `onResponse` is not called for an answer that does not end because its client left.
    reply.raw.once("close", () => {
      if (!reply.raw.writableFinished) observe(request, reply, "left");
    });
    done();
  });
  server.addHook("onResponse", (request, reply, done) => {
    const { statusCode: status, elapsedTime } = reply;
    const who = { org_id: request.principal?.orgId, key_id: request.principal?.credentialId };
    const observed = observe(request, reply, String(status));
    request.log.info({ ...observed, status, elapsed_ms: Math.round(elapsedTime), ...who }, "answered");
    done();
  });
}

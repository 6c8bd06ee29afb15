/** Calls back after each answer, with the facts about its request. */
import type { FastifyInstance } from "fastify";
import type { Principal } from "../access/principal.ts";
import type { ApiError } from "../errors/api-error.ts";

export interface Answered {
  id: string;
  ip: string;
  principal: Principal | null;
  /** Id of the operation; absent for a path or a method that does not exist. */
  operationId: string | undefined;
  route: string;
  params: Readonly<Record<string, string>>;
  body: unknown;
  status: number;
  /** The error that the request was answered with. */
  refusal: ApiError | null;
}

export function onAnswered(server: FastifyInstance, then: (answered: Answered) => Promise<void>): void {
  server.addHook("onResponse", async (request, reply) => {
    const { id, ip, principal, routeOptions, params, body, refusal } = request;
    const { operationId } = (routeOptions.schema ?? {}) as { operationId?: string };
    await then({
      ...{ id, ip, principal, body, refusal, operationId },
      route: routeOptions.url ?? "",
      params: (params ?? {}) as Record<string, string>,
      status: reply.statusCode,
    });
  });
}

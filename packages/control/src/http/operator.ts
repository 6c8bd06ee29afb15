/** Keeps the routes of the installation for its operator, and the operator's key to these routes. */
import type { FastifyInstance } from "fastify";
import { ApiError } from "../errors/api-error.ts";

const ADMIN = "/v1/admin/";

/** Comes after the checks of credential, path and method. */
export function holdOperatorsToTheirRoutes(server: FastifyInstance): void {
  server.addHook("onRequest", async (request) => {
    if (!request.principal || request.is404) return;
    const isOperator = request.principal.kind === "operator";
    if (isOperator === (request.routeOptions.url ?? "").startsWith(ADMIN)) return;
    throw new ApiError(
      "forbidden",
      isOperator
        ? "the operator's key opens /v1/admin alone: use an API key"
        : "only the operator's key may do that: it is in control/operator.key of the service's data directory",
    );
  });
}

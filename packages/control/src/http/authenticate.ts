import type { FastifyInstance, FastifyRequest } from "fastify";
import { authenticate } from "../access/authenticate.ts";
import type { Principal } from "../access/principal.ts";
import type { Database } from "../db/pool.ts";
import { ApiError } from "./api-error.ts";

declare module "fastify" {
  interface FastifyRequest {
    principal: Principal | null;
  }
  interface FastifyContextConfig {
    /** The route answers without a credential. */
    isPublic?: boolean;
  }
}

/** Every path wants a credential, unknown ones too; only routes that say so do not. */
export function requireCredential(server: FastifyInstance, deps: { db: Database; pepper: Buffer }): void {
  server.decorateRequest("principal", null);
  server.addHook("onRequest", async (request) => {
    if (request.routeOptions.config?.isPublic) return;
    request.principal = await authenticate(deps, request.headers.authorization);
  });
}

export function principalOf(request: FastifyRequest): Principal {
  if (!request.principal)
    throw new ApiError("unauthenticated", "Authorization: is required, as `Bearer <API key>`");
  return request.principal;
}

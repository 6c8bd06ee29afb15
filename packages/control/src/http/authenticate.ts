import type { FastifyInstance, FastifyRequest } from "fastify";
import type { Authenticator } from "../access/authenticate.ts";
import type { Principal } from "../access/principal.ts";
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
export function requireCredential(server: FastifyInstance, deps: { authenticator: Authenticator }): void {
  server.decorateRequest("principal", null);
  server.addHook("onRequest", async (request) => {
    if (request.routeOptions.config?.isPublic) return;
    request.principal = await deps.authenticator.authenticate(request.headers.authorization);
  });
}

export function principalOf(request: FastifyRequest): Principal {
  if (!request.principal)
    throw new ApiError("unauthenticated", "Authorization: is required, as `Bearer <API key>`");
  return request.principal;
}

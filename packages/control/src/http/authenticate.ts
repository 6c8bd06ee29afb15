import type { FastifyInstance, FastifyRequest } from "fastify";
import type { Authenticator } from "../access/authenticate.ts";
import type { Principal } from "../access/principal.ts";
import { ApiError } from "../errors/api-error.ts";
import { timesSent } from "./times-sent.ts";

declare module "fastify" {
  interface FastifyRequest {
    principal: Principal | null;
  }
  interface FastifyContextConfig {
    /** The route answers without a credential. */
    isPublic?: boolean;
    /** Although it is a GET. */
    changesThings?: boolean;
  }
}

/** Every path wants a credential, unknown ones too; only routes that say so do not. */
export function requireCredential(server: FastifyInstance, deps: { authenticator: Authenticator }): void {
  server.decorateRequest("principal", null);
  server.addHook("onRequest", async (request) => {
    if (request.routeOptions.config?.isPublic) return;
    request.principal = await authenticate(deps, request);
  });
}

/** Two credentials are none: who stands in front of this server may have read the other one. */
export async function authenticate(
  { authenticator }: { authenticator: Authenticator },
  { raw }: FastifyRequest,
): Promise<Principal> {
  if (timesSent(raw, "authorization") > 1)
    throw new ApiError("unauthenticated", "Authorization: must be sent once");
  return await authenticator.authenticate(raw.headers.authorization);
}

const READS = new Set(["GET", "HEAD"]);

/** A suspended organisation reads what it has and changes nothing (part 2, 1.1). After credential, path and method. */
export function refuseWritesOfSuspended(server: FastifyInstance): void {
  server.addHook("onRequest", async (request) => {
    const isRead = READS.has(request.method) && !request.routeOptions.config?.changesThings;
    if (!request.principal?.isSuspended || isRead || request.is404) return;
    throw new ApiError(
      "forbidden",
      "your organisation is suspended: it may read, and change nothing; ask who runs this service",
    );
  });
}

export function principalOf(request: FastifyRequest): Principal {
  if (!request.principal)
    throw new ApiError("unauthenticated", "Authorization: is required, as `Bearer <API key>`");
  return request.principal;
}

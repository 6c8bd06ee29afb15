/** Authenticates requests, limits wrong credentials, and refuses changes by suspended organisations and by keys that may only read. */
import { headerPairs, valuesOf } from "@vivarium/http1/headers";
import type { FastifyInstance, FastifyRequest } from "fastify";
import type { Authenticator } from "../access/authenticate.ts";
import type { Principal } from "../access/principal.ts";
import type { WrongCredentials } from "../access/wrong-credentials.ts";
import { ApiError } from "../errors/api-error.ts";

declare module "fastify" {
  interface FastifyRequest {
    principal: Principal | null;
  }
  interface FastifyContextConfig {
    /** The route answers without a credential. */
    isPublic?: boolean;
    /** A GET that changes something: suspended organisations may not call it. */
    changesThings?: boolean;
  }
}

export interface CredentialDeps {
  authenticator: Authenticator;
  wrongCredentials: WrongCredentials;
}

/** Every path needs a credential, unknown ones too, except routes that are marked public. */
export function requireCredential(server: FastifyInstance, deps: CredentialDeps): void {
  server.decorateRequest("principal", null);
  server.addHook("onRequest", async (request) => {
    if (request.routeOptions.config?.isPublic) return;
    request.principal = await authenticate(deps, request);
  });
}

/** A request without a credential is refused, but does not count as one with a wrong credential. */
export async function authenticate(deps: CredentialDeps, request: FastifyRequest): Promise<Principal> {
  // Read now: a connection that has closed has no address any more.
  const { ip, raw, log } = request;
  try {
    return await readPrincipal(deps, request);
  } catch (error) {
    const isWrong = error instanceof ApiError && error.code === "unauthenticated";
    if (!isWrong || raw.headers.authorization === undefined) throw error;
    const { refusal, begins } = deps.wrongCredentials.count(error, ip);
    if (begins)
      log.warn({ ip }, "an address sends many wrong credentials; further ones are answered with 429");
    throw refusal;
  }
}

/** Refuses two Authorization headers, because a proxy in front of this server may have checked the other one. */
async function readPrincipal({ authenticator }: CredentialDeps, { raw }: FastifyRequest): Promise<Principal> {
  if (valuesOf(headerPairs(raw.rawHeaders), "authorization").length > 1)
    throw new ApiError("unauthenticated", "Authorization: must be sent once");
  return await authenticator.authenticate(raw.headers.authorization);
}

const READS = new Set(["GET", "HEAD"]);

/** Refuses changes to those who may only read, after the checks of credential, path and method. */
export function refuseWritesOfReaders(server: FastifyInstance): void {
  server.addHook("onRequest", async (request) => {
    const isRead = READS.has(request.method) && !request.routeOptions.config?.changesThings;
    if (!request.principal || isRead || request.is404) return;
    if (request.principal.isSuspended)
      throw new ApiError(
        "forbidden",
        "your organisation is suspended: it may read, and change nothing; ask who runs this service",
      );
    if (request.principal.role === "read")
      throw new ApiError("forbidden", "this API key has the role read: use a key with the role full");
  });
}

export function principalOf(request: FastifyRequest): Principal {
  if (!request.principal)
    throw new ApiError("unauthenticated", "Authorization: is required, as `Bearer <API key>`");
  return request.principal;
}

/** Holds a scoped token to its session and its capabilities (docs/spec/access.md). */
import { TOKEN_ENDPOINTS } from "@vivarium/contract/api";
import type { FastifyInstance, FastifyRequest } from "fastify";
import { ApiError, SessionNotFound } from "../errors/api-error.ts";

const OF_A_SESSION = "/v1/sessions/:id";

/** Comes after the checks of credential, path and method. */
export function holdTokensToTheirSession(server: FastifyInstance): void {
  server.addHook("onRequest", async (request) => {
    const token = request.principal?.session;
    if (!token || request.is404) return;
    const route = request.routeOptions.url ?? "";
    const isOfSession = route === OF_A_SESSION || route.startsWith(`${OF_A_SESSION}/`);
    // Another session looks as if there were none.
    if (isOfSession && (request.params as { id?: string }).id !== token.id) throw new SessionNotFound();
    const needed = TOKEN_ENDPOINTS[`${request.method} ${route}`];
    if (!needed) throw new ApiError("forbidden", "this scoped token may not do that: use an API key");
    if (!needed.some((one) => token.capabilities.includes(one)))
      throw new ApiError("forbidden", `this scoped token lacks the capability ${needed.join(" or ")}`);
  });
}

/** Refuses a body that names any session but the token's own. */
export function requireOwnSessions({ principal }: FastifyRequest, sessionIds: readonly string[]): void {
  const token = principal?.session;
  if (!token || sessionIds.every((id) => id === token.id)) return;
  throw new ApiError("forbidden", "session_ids: this scoped token reaches its own session alone");
}

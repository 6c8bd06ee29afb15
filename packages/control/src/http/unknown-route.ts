/** Answers 404 for unknown paths and 405 for wrong methods, also where `:id` would match a fixed path. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { ApiError } from "../errors/api-error.ts";

interface KnownPath {
  pattern: RegExp;
  isFixed: boolean;
  methods: string[];
}

/** Must be registered before any route, because it collects their paths. */
export function answerUnknownRoutes(server: FastifyInstance): void {
  // No path has QUERY. Declared without a body, because the framework checks a body's Content-Type before the path.
  server.addHttpMethod("QUERY", { hasBody: false, overrideExisting: true });
  const paths = new Map<string, KnownPath>();
  server.addHook("onRoute", ({ url, method }) => {
    const known = paths.get(url) ?? { pattern: toPattern(url), isFixed: !url.includes(":"), methods: [] };
    known.methods.push(...[method].flat());
    paths.set(url, known);
  });
  // `GET /v1/sessions/exec` matches `GET /v1/sessions/:id`, but gets the 405 of the fixed path.
  server.addHook("onRequest", async (request, reply) => {
    if (!request.routeOptions.url?.includes(":")) return;
    const fixed = paths.get(pathOf(request));
    if (fixed?.isFixed) refuseMethod(request, reply, fixed.methods);
  });
  const refuseUnknown = (request: FastifyRequest, reply: FastifyReply): never => {
    const path = pathOf(request);
    const fixed = paths.get(path);
    const methods = fixed?.isFixed
      ? fixed.methods
      : [...paths.values()].filter(({ pattern }) => pattern.test(path)).flatMap((known) => known.methods);
    if (methods.length > 0) refuseMethod(request, reply, methods);
    throw new ApiError(
      "not_found",
      `no such path: ${request.method} ${path}; paths start with /v1 and have no trailing slash`,
    );
  };
  // After the credential, and before the body is read.
  server.addHook("preParsing", async (request, reply) => {
    if (request.is404) refuseUnknown(request, reply);
  });
  server.setNotFoundHandler(refuseUnknown);
}

function refuseMethod(request: FastifyRequest, reply: FastifyReply, methods: string[]): never {
  const allow = [...new Set(methods)].sort().join(", ");
  reply.header("allow", allow);
  throw new ApiError("method_not_allowed", `method: must be ${allow} for this path, got ${request.method}`);
}

function pathOf(request: FastifyRequest): string {
  return request.url.split("?", 1)[0] ?? "";
}

function toPattern(url: string): RegExp {
  const escaped = url.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  return new RegExp(`^${escaped.replace(/:[a-zA-Z]+/g, "[^/]+")}$`);
}

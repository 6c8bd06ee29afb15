/** Routes of contract/node for builds: parse, call, answer. */
import { BuildSpec } from "@vivarium/contract/node";
import type { FastifyInstance } from "fastify";
import type { Builds } from "../builds/builds.ts";
import { buildId, parse } from "./params.ts";

export function registerBuildRoutes(server: FastifyInstance, builds: Builds): void {
  server.get("/v1/builds", () => ({ builds: builds.list() }));

  server.get("/v1/builds/:build_id", (request) => builds.find(buildId(request.params)));

  server.get("/v1/builds/:build_id/log", (request) => builds.logOf(buildId(request.params)));

  server.put("/v1/builds/:build_id", async (request) => {
    const id = buildId(request.params);
    return await builds.put(id, parse(BuildSpec, request.body));
  });

  server.delete("/v1/builds/:build_id", async (request, reply) => {
    await builds.remove(buildId(request.params));
    return reply.code(204).send();
  });
}

import swagger from "@fastify/swagger";
import type { FastifyInstance } from "fastify";
import { jsonSchemaTransform, jsonSchemaTransformObject } from "fastify-type-provider-zod";

/** The OpenAPI 3.1 document of the routes that are registered after this call, and the paths that serve it. */
export async function documentApi(server: FastifyInstance, version: string): Promise<void> {
  await server.register(swagger, {
    openapi: {
      openapi: "3.1.0",
      info: {
        title: "Vivarium",
        version,
        description: "Runs untrusted code, each execution in a virtual machine of its own.",
        license: { name: "Apache-2.0", identifier: "Apache-2.0" },
      },
      components: { securitySchemes: { apiKey: { type: "http", scheme: "bearer" } } },
      security: [{ apiKey: [] }],
    },
    transform: jsonSchemaTransform,
    transformObject: jsonSchemaTransformObject,
  });
  const options = { config: { isPublic: true }, schema: { hide: true } };
  server.get("/v1/openapi.json", options, async () => server.swagger());
  server.get("/v1/openapi.yaml", options, async (_request, reply) => {
    return await reply
      .header("content-type", "application/yaml; charset=utf-8")
      .send(server.swagger({ yaml: true }));
  });
}

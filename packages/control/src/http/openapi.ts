import swagger from "@fastify/swagger";
import type { FastifyInstance } from "fastify";
import { jsonSchemaTransform, jsonSchemaTransformObject } from "fastify-type-provider-zod";
import type { OpenAPIV3_1 } from "openapi-types";
import { z } from "zod";
import { errorAnswers } from "./error-answers.ts";

/** The OpenAPI 3.1 document of the routes that are registered after this call, and the paths that serve it. */
export async function documentApi(server: FastifyInstance, version: string): Promise<void> {
  const optional = new Set<string>();
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
    transform: (route) => {
      // A body that may be `{}` may be absent: validation.ts reads an absent one as `{}`.
      const { body, operationId } = route.schema as { body?: unknown; operationId?: string };
      if (operationId && body instanceof z.ZodType && body.safeParse({}).success) optional.add(operationId);
      return jsonSchemaTransform(route);
    },
    transformObject: (document) => {
      const whole = jsonSchemaTransformObject(document) as OpenAPIV3_1.Document;
      complete(whole, optional);
      return tidy(whole);
    },
  });
  const options = { schema: { hide: true } };
  server.get("/v1/openapi.json", options, async () => server.swagger());
  server.get("/v1/openapi.yaml", options, async (_request, reply) => {
    return await reply
      .header("content-type", "application/yaml; charset=utf-8")
      .send(server.swagger({ yaml: true }));
  });
}

/** Marks optional bodies, and adds the refusal of suspended organisations (403) to all operations but GETs. */
function complete({ paths = {} }: OpenAPIV3_1.Document, optional: ReadonlySet<string>): void {
  const description = errorAnswers("forbidden")[403]?.description ?? "";
  for (const path of Object.values(paths)) {
    for (const [method, operation] of Object.entries(path ?? {}) as [string, OpenAPIV3_1.OperationObject][]) {
      if (
        operation.requestBody &&
        "content" in operation.requestBody &&
        optional.has(operation.operationId ?? "")
      )
        operation.requestBody.required = false;
      if (method === "get" || !operation.responses) continue;
      operation.responses["403"] ??= {
        description,
        content: { "application/json": { schema: { $ref: "#/components/schemas/Error" } } },
      };
    }
  }
}

/**
 * Every named schema is generated twice, for requests (`NameInput`) and for answers (`Name`). Keeps those with a
 * `$ref`, and drops the suffix where only `NameInput` is left.
 */
function tidy(document: OpenAPIV3_1.Document): OpenAPIV3_1.Document {
  const all = document.components?.schemas ?? {};
  const used = reachable(document.paths, all);
  let text = JSON.stringify({
    ...document,
    components: {
      ...document.components,
      schemas: Object.fromEntries(Object.entries(all).filter(([name]) => used.has(name))),
    },
  });
  for (const name of used) {
    const plain = name.replace(/Input$/, "");
    if (plain === name || used.has(plain)) continue;
    text = text.replaceAll(`"#/components/schemas/${name}"`, `"#/components/schemas/${plain}"`);
    text = text.replaceAll(`"${name}":{`, `"${plain}":{`);
  }
  return JSON.parse(text) as OpenAPIV3_1.Document;
}

function reachable(from: unknown, schemas: Record<string, unknown>, seen = new Set<string>()): Set<string> {
  for (const [, name] of JSON.stringify(from ?? {}).matchAll(/"#\/components\/schemas\/([^"]+)"/g)) {
    if (name === undefined || seen.has(name)) continue;
    seen.add(name);
    reachable(schemas[name], schemas, seen);
  }
  return seen;
}

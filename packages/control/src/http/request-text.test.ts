/** No text of a request is one that PostgreSQL or the guest's wire cannot hold; asked of every schema of every route. */
import { channel } from "node:diagnostics_channel";
import type { FastifyInstance, RouteOptions } from "fastify";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { z } from "zod";
import { type Control, startControl } from "../../test-support/control.ts";

const NUL = "a\0b";
const LONE_SURROGATE = "a\ud800b";

/** Texts of requests that may be such, and why. */
const EXCEPTIONS: Record<string, { text: string; why: string } | undefined> = {
  "PUT /v1/sessions/:id/files body content": { text: NUL, why: "a file may hold NUL" },
  "POST /v1/sessions/:id/files body content": { text: NUL, why: "a file may hold NUL" },
  "POST /v1/sessions/exec body code": { text: NUL, why: "it becomes a file" },
};
/** An error in one file of a batch fails that file alone, in its item of the answer. */
const OF_BATCH_ITEMS = /^PUT \/v1\/sessions\/:id\/files\/batch body files\[\]\.(path|content)$/;

let control: Control;
const routes: RouteOptions[] = [];
beforeAll(async () => {
  const made = channel("fastify.initialization");
  const watch = (message: unknown) => {
    const { fastify } = message as { fastify: FastifyInstance };
    fastify.addHook("onRoute", (route) => void routes.push(route));
  };
  made.subscribe(watch);
  control = await startControl({ sweeps: false });
  made.unsubscribe(watch);
});
afterAll(() => control.close());

type Key = string | number;
interface Leaf {
  name: string;
  kind: string;
  /** A body or query with nothing but this text in it, and where the text is. */
  holding: (text: string) => { input: unknown; path: Key[] };
}

/** Every text that a schema takes in: fields, elements, keys and values of maps. */
function textsOf(schema: z.core.$ZodType): Leaf[] {
  const { def } = schema._zod as unknown as { def: Record<string, unknown> & { type: string } };
  const inside = (name: string, inner: unknown, wrap: (input: unknown) => unknown, key: Key): Leaf[] =>
    textsOf(inner as z.core.$ZodType).map((leaf) => ({
      ...leaf,
      name: leaf.name === "" || leaf.name.startsWith("[") ? `${name}${leaf.name}` : `${name}.${leaf.name}`,
      holding: (text) => {
        const { input, path } = leaf.holding(text);
        return { input: wrap(input), path: [key, ...path] };
      },
    }));
  switch (def.type) {
    case "object":
      return Object.entries(def.shape as object).flatMap(([key, inner]) =>
        inside(key, inner, (input) => ({ [key]: input }), key),
      );
    case "array":
      return inside("[]", def.element, (input) => [input], 0);
    case "record": {
      const key: Leaf = {
        name: "[key]",
        kind: "string",
        holding: (text) => ({ input: { [text]: "x" }, path: [text] }),
      };
      return [key, ...inside("[value]", def.valueType, (input) => ({ KEY: input }), "KEY")];
    }
    case "union":
      return (def.options as z.core.$ZodType[]).flatMap(textsOf);
    case "pipe":
      return textsOf(def.in as z.core.$ZodType);
    case "number":
    case "boolean":
    case "literal":
    case "enum":
      return [];
    case "string":
    case "unknown":
    case "any":
      return [{ name: "", kind: def.type, holding: (text) => ({ input: text, path: [] }) }];
    default:
      if (def.innerType === undefined) throw new Error(`this test does not know schemas of type ${def.type}`);
      return textsOf(def.innerType as z.core.$ZodType);
  }
}

function textsOfRoutes(parts: readonly ("body" | "querystring" | "headers")[]) {
  return routes.flatMap(({ method, url, schema }) =>
    parts.flatMap((part) => {
      const whole = schema?.[part] as z.ZodType | undefined;
      if (!whole) return [];
      return textsOf(whole).map((leaf) => ({
        ...leaf,
        whole,
        name: `${method} ${url} ${part} ${leaf.name}`,
      }));
    }),
  );
}

/** The refusal of the text, or undefined when the text is accepted. */
function refusalOf(whole: z.ZodType, leaf: Leaf, text: string): string | undefined {
  const { input, path } = leaf.holding(text);
  const { error } = whole.safeParse(input);
  return error?.issues.find((issue) => JSON.stringify(issue.path) === JSON.stringify(path))?.message;
}

test("every text of every request is refused with a NUL or a lone surrogate in it, but for the content of files", () => {
  const taken: string[] = [];
  const leaves = textsOfRoutes(["body", "querystring", "headers"]);
  for (const leaf of leaves) {
    if (OF_BATCH_ITEMS.test(leaf.name)) continue;
    for (const text of [NUL, LONE_SURROGATE]) {
      if (EXCEPTIONS[leaf.name]?.text === text) continue;
      if (refusalOf(leaf.whole, leaf, text) === undefined)
        taken.push(`${leaf.name} takes ${JSON.stringify(text)}`);
    }
  }
  expect(taken).toEqual([]);
  // The walk found what it is for.
  const names = leaves.map(({ name }) => name);
  for (const known of [
    "POST /v1/sessions body labels[key]",
    "POST /v1/sessions body env[value]",
    "POST /v1/sessions body egress.allow[]",
    "POST /v1/sessions/:id/exec body command[]",
    "GET /v1/sessions/:id/pty querystring cmd[]",
    "GET /v1/audit querystring cursor",
    "POST /v1/sessions headers idempotency-key",
    ...Object.keys(EXCEPTIONS),
  ])
    expect(names).toContain(known);
  expect(names.some((name) => OF_BATCH_ITEMS.test(name))).toBe(true);
});

test("the answer names the text that was refused", async () => {
  const of = async (call: string, body?: object) => {
    const answer = await control.ask(call, { body });
    return [answer.status, answer.body.code, answer.body.error];
  };
  const refused = (error: string) => [400, "validation", error];
  expect(await of("POST /v1/sessions", { volume_id: "\0" })).toEqual(
    refused('volume_id: must not contain a NUL character, got "\\u0000"'),
  );
  expect(await of("POST /v1/sessions", { egress: { mode: "deny", allow: ["x.com", "\ud800"] } })).toEqual(
    refused('egress.allow[1]: must be valid Unicode, got "\\ud800"'),
  );
  expect(await of("POST /v1/sessions", { env: { A: "hunter2\0" } })).toEqual(
    refused("env.A: must not contain a NUL character"),
  );
  const run = { language: "python", code: "1", dependencies: ["\ud800"] };
  expect(await of("POST /v1/sessions/exec", run)).toEqual(
    refused('dependencies[0]: must be valid Unicode, got "\\ud800"'),
  );
  expect(await of("GET /v1/audit?action=%00")).toEqual(
    refused('action: must not contain a NUL character, got "\\u0000"'),
  );
});

/** Deletes by name that are done if there is nothing: any text names nothing. */
const DONE_IF_ABSENT = ["DELETE /v1/registry-credentials/:name"];

test("an id or a name of the wrong form in a path matches nothing", async () => {
  const asked = routes.filter(({ url }) => url.includes(":"));
  expect(asked.length).toBeGreaterThan(30);
  for (const { method, url } of asked) {
    const id = await control.create();
    for (const parameter of url.match(/:[a-z]+/g) ?? []) {
      const filled = url
        .replace(parameter, "a%00")
        .replace(":id", id)
        .replace(/:[a-z]+/g, "x");
      // Where a body or query is wanted, that is said first.
      const { status, body } = await control.ask(`${method} ${filled}`);
      const allowed = DONE_IF_ABSENT.includes(`${method} ${url}`) ? [204] : [400, 404, 405];
      expect(allowed, `${method} ${filled}: ${JSON.stringify(body)}`).toContain(status);
    }
    await control.ask(`DELETE /v1/sessions/${id}`);
  }
});

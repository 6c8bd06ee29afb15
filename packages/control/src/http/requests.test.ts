import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Control, startControl } from "../../test-support/control.ts";

let control: Control;
beforeAll(async () => {
  control = await startControl();
});
afterAll(() => control.close());

const EXEC = `POST /v1/sessions/${"a".repeat(21)}/exec`;

describe("bodies", () => {
  test.each([
    ["malformed JSON", "{"],
    ["an empty text of spaces", "   "],
    ["an array", "[]"],
    ["null", "null"],
    ["a string", '"x"'],
    ["a number", "1"],
    ["bytes that are not UTF-8", Buffer.from([0x7b, 0xff, 0x7d])],
    ["a field that would be a prototype", '{"__proto__": {"size": "small"}}'],
    ["the same with escapes", '{"labels": {"\\u005f_proto__": "x"}}'],
  ])("%s is 400", async (_name, raw) => {
    const answer = await control.ask("POST /v1/sessions", { raw });
    expect([answer.status, answer.body.code]).toEqual([400, "validation"]);
    expect(answer.body.error).toMatch(/^body: must /);
    expect(answer.headers["retry-after"]).toBeUndefined();
  });

  test("a body that is nested as deep as it is long is read, whatever words are in it", async () => {
    const depth = 200_000;
    const raw = `{"command":1,"x":"__proto__","y":${"[".repeat(depth)}${"]".repeat(depth)}}`;
    expect((await control.ask(EXEC, { raw })).body.error).toBe("command: must be an array, got 1");
    const deep = `{"y":${"[".repeat(depth)}{"__proto__":1}${"]".repeat(depth)}}`;
    expect((await control.ask(EXEC, { raw: deep })).body.error).toMatch(/^body: must not hold/);
  });

  test("a malformed body is described without its content", async () => {
    const { body } = await control.ask("POST /v1/sessions", { raw: '{"env": {"A": "hunter2" "B"' });
    expect(body.error).not.toContain("hunter2");
  });

  test.each([
    "text/plain",
    "garbage",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
  ])("Content-Type %s does not matter", async (type) => {
    const answer = await control.ask(EXEC, { raw: '{"command": 1}', headers: { "content-type": type } });
    expect(answer.body).toEqual({ error: "command: must be an array, got 1", code: "validation" });
  });

  test("more than 1 MiB is refused as too large, 1 MiB is not", async () => {
    const of = (bytes: number) =>
      JSON.stringify({ command: [""], pad: "" }).replace(
        '"pad":""',
        () => `"pad":"${"x".repeat(bytes - 25)}"`,
      );
    const atLimit = of(1024 * 1024);
    expect(Buffer.byteLength(atLimit)).toBe(1024 * 1024);
    expect((await control.ask(EXEC, { raw: atLimit })).body.code).toBe("validation");
    const over = await control.ask(EXEC, { raw: `${atLimit} ` });
    expect([over.status, over.body.code]).toEqual([400, "payload_too_large"]);
  });

  test("no body at all is fine where everything is optional, and says what is missing elsewhere", async () => {
    expect((await control.ask("POST /v1/sessions")).status).toBe(200);
    expect((await control.ask(EXEC)).body.error).toBe("command: must be an array, got nothing");
  });

  test("a body is judged before the session is looked up", async () => {
    expect((await control.ask(EXEC, { body: {} })).status).toBe(400);
    expect((await control.ask(EXEC, { body: { command: ["true"] } })).status).toBe(404);
  });
});

describe("paths and methods", () => {
  test.each([
    "/",
    "/v1",
    "/v1/sessions/",
    "/v2/sessions",
    "/v1/sessions/a/b/c",
    "/v1//sessions",
    "/v1/healthz/",
  ])("%s is an unknown path", async (path) => {
    const answer = await control.ask(`GET ${path}`);
    expect([answer.status, answer.body.code]).toEqual([404, "not_found"]);
  });

  test.each([
    ["PUT /v1/sessions", "GET, POST"],
    ["POST /v1/org", "GET"],
    ["PATCH /v1/healthz", "GET"],
    ["POST /v1/sessions/aaaaaaaaaaaaaaaaaaaaa", "DELETE, GET, PATCH"],
    ["GET /v1/sessions/aaaaaaaaaaaaaaaaaaaaa/exec", "POST"],
    ["GET /v1/sessions/exec", "POST"],
    ["DELETE /v1/sessions/exec", "POST"],
    ["PUT /v1/sessions/exec", "POST"],
    ["GET /v1/sessions/batch/exec", "POST"],
  ])("%s is a wrong method; %s would do", async (call, allow) => {
    const answer = await control.ask(call);
    expect([answer.status, answer.body.code, answer.headers.allow]).toEqual([
      405,
      "method_not_allowed",
      allow,
    ]);
  });

  test.each(["%zz", "%ff", "%ED%A0%80", "a%"])(
    "an id that is no encoded UTF-8 (%s) is not found",
    async (id) => {
      const answer = await control.ask(`GET /v1/sessions/${id}`);
      expect([answer.status, answer.body.code]).toEqual([404, "not_found"]);
      expect(answer.headers["x-request-id"]).toMatch(/^req_/);
      expect((await control.ask(`GET /v1/sessions/${id}`, { key: null })).status).toBe(401);
    },
  );

  test("a query that cannot be read is refused after the credential and the path", async () => {
    const status = async (call: string, key?: null) => (await control.ask(call, { key })).status;
    expect(await status("GET /v1/org?a=%ff", null)).toBe(401);
    expect(await status("GET /v1/none?a=%ff")).toBe(404);
    expect(await status("POST /v1/org?a=%ff")).toBe(405);
    expect(await status("GET /v1/org?a=%ff")).toBe(400);
  });

  test("a body that cannot be read is refused after the credential and the path", async () => {
    const status = async (method: "PUT" | "POST", url: string, key = control.key) => {
      const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
      return (await control.app.server.inject({ method, url, headers, payload: "{x" })).statusCode;
    };
    expect(await status("PUT", "/v1/none", "wrong")).toBe(401);
    expect(await status("PUT", "/v1/none")).toBe(404);
    expect(await status("PUT", "/v1/sessions")).toBe(405);
    expect(await status("POST", "/v1/sessions")).toBe(400);
  });

  test.each([
    ['{"a": 1,', /it cannot be read past the end of JSON input$|it cannot be read at position 8$/],
    ["{x", /it cannot be read at position 1$/],
    ['{"a":1} x', /it cannot be read at position 8$/],
    ['{"a":at position 77}', /it cannot be read$/],
    ['{"a":in JSON at position 77', /it cannot be read$/],
  ])(
    "%j is refused with the position that the parser gave, and none of its text",
    async (payload, message) => {
      const headers = { authorization: `Bearer ${control.key}`, "content-type": "application/json" };
      const { body } = await control.app.server.inject({
        method: "POST",
        url: "/v1/sessions",
        headers,
        payload,
      });
      expect(JSON.parse(body).error).toMatch(message);
    },
  );

  test("a path of any length is answered", async () => {
    expect((await control.ask(`GET /v1/sessions/${"a".repeat(5000)}`)).status).toBe(404);
  });
});

describe("headers", () => {
  test("a request id of the right form is kept, any other is replaced", async () => {
    const id = async (given: string) =>
      (await control.ask("GET /v1/org", { headers: { "x-request-id": given } })).headers["x-request-id"];
    expect(await id("my.request:1-a_b")).toBe("my.request:1-a_b");
    expect(await id("a b")).toMatch(/^req_/);
    expect(await id("x".repeat(129))).toMatch(/^req_/);
  });

  test.each(["GET /v1/sessions", "GET /v1/nothing", "POST /v1/org", "GET /v1/healthz"])(
    "%s carries a request id, no-store and JSON in UTF-8",
    async (call) => {
      const { headers } = await control.ask(call);
      expect(headers["x-request-id"]).toMatch(/^req_[a-z0-9]{21}$/);
      expect(headers["cache-control"]).toBe("no-store");
      expect(headers["content-type"]).toBe("application/json; charset=utf-8");
    },
  );
});

test("messages are one line of at most 500 characters, whatever the value", async () => {
  const name = `a\n${"é".repeat(2000)}`;
  const { body } = await control.ask("POST /v1/sessions", {
    body: { size: name, [name]: 1, labels: { [name]: "x" } },
  });
  expect(body.error.length).toBeLessThanOrEqual(500);
  expect(body.error).not.toMatch(/[\n\r]/);
  const unknown = await control.ask(`GET /v1/${"x".repeat(2000)}`);
  expect(unknown.body.error.length).toBeLessThanOrEqual(500);
});

test("the OpenAPI document says which bodies may be left out, and where 403, 409 and 429 can happen", async () => {
  const { body } = await control.ask("GET /v1/openapi.json");
  const operations: { operationId: string; requestBody?: { required: boolean }; responses: object }[] =
    Object.values(body.paths).flatMap((path) => Object.values(path as object));
  const byId = new Map(operations.map((operation) => [operation.operationId, operation]));
  for (const id of ["createSession", "pauseSession", "forkSession", "createCheckpoint", "startCheckpoint"])
    expect([id, byId.get(id)?.requestBody?.required]).toEqual([id, false]);
  for (const id of ["exec", "run", "restoreSession", "setEgress"])
    expect([id, byId.get(id)?.requestBody?.required]).toEqual([id, true]);
  for (const id of ["createSession", "resumeSession", "exec", "run", "restoreSession", "forkSession"])
    expect([id, Object.keys(byId.get(id)?.responses ?? {})]).toEqual([
      id,
      expect.arrayContaining(["403", "409", "429"]),
    ]);
});

test("the OpenAPI document is served as JSON and as YAML, to who has a key", async () => {
  expect((await control.ask("GET /v1/openapi.json", { key: null })).status).toBe(401);
  const json = await control.ask("GET /v1/openapi.json");
  expect(json.body.openapi).toMatch(/^3\.1/);
  const yaml = await control.ask("GET /v1/openapi.yaml");
  expect(yaml.text).toMatch(/^openapi: 3\.1/);
});

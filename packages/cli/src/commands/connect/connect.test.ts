/** `viv connect` and `viv create --connect`: what they ask the service, and what they print. */
import { writeFile } from "node:fs/promises";
import path from "node:path";
import { Readable } from "node:stream";
import { afterEach, expect, test, vi } from "vitest";
import { dir, inOwnDirectories, respond, S1, serve, viv } from "../../../test-support/program.ts";

inOwnDirectories();

const at = "2027-01-01T10:00:00.000Z";
const origin = "https://api.example.com";
const connection = {
  name: "payments",
  origin,
  state: "active",
  auth_type: "bearer",
  header_name: "Authorization",
  allow: { methods: ["GET"], paths: ["/v1/*"] },
  created_at: at,
  expires_at: at,
};
const revoked = {
  ...connection,
  name: "search",
  state: "revoked",
  allow: { methods: [], paths: [] },
  revoked_at: at,
  last_used_at: at,
};
const given = (verb: "add" | "rotate") => [
  ...["connect", verb, S1, origin],
  ...["--name", "payments", "--allow", "get /v1/*"],
];
const CONNECT = given("add");
const env = { PAYMENTS_KEY: "sk_test" };
const SECRET = ["--secret", "PAYMENTS_KEY"];
const fromEnv = [...CONNECT, ...SECRET];

const service = () =>
  serve(({ method }, response) => {
    if (method === "DELETE") response.writeHead(204).end();
    else if (method === "GET") respond(response, 200, { connections: [revoked, connection] });
    else respond(response, method === "POST" ? 201 : 200, connection);
  });

afterEach(() => vi.restoreAllMocks());
function pipe(text: string): void {
  vi.spyOn(process, "stdin", "get").mockReturnValue(Readable.from([Buffer.from(text)]) as never);
}

test("connect add adds a Connection with the secret of a variable, and prints its name in a pipe", async () => {
  const { url, seen } = await service();
  expect(await viv(url, fromEnv, env)).toEqual({ code: 0, out: "payments\n", err: "" });
  expect(seen).toEqual([
    {
      method: "POST",
      url: `/v1/sessions/${S1}/connections`,
      key: "Bearer viv_local",
      body: {
        name: "payments",
        origin,
        authentication: { type: "bearer", secret: "sk_test" },
        allow: { methods: ["GET"], paths: ["/v1/*"] },
      },
    },
  ]);
});

test("connect rotate replaces the Connection, and takes a header and a time like connect add", async () => {
  const { url, seen } = await service();
  const more = ["--header", "X-Api-Key", "--ttl", "1h"];
  expect((await viv(url, [...given("rotate"), ...SECRET, ...more], env)).code).toBe(0);
  expect(seen[0]).toMatchObject({ method: "PUT", url: `/v1/sessions/${S1}/connections/payments` });
  expect(seen[0]?.body).toEqual({
    origin,
    authentication: { type: "header", header_name: "X-Api-Key", secret: "sk_test" },
    allow: { methods: ["GET"], paths: ["/v1/*"] },
    ttl_seconds: 3600,
  });
});

test("connect add asks a human for the secret", async () => {
  const { url, seen } = await service();
  const { err } = await viv(url, CONNECT, {}, { answer: "sk_typed" });
  expect(err).toBe(`Credential for ${origin}: \n`);
  expect(seen[0]?.body).toMatchObject({ authentication: { secret: "sk_typed" } });
});

test("connect add reads the secret from its standard input, or from a file, without the line end", async () => {
  const { url, seen } = await service();
  pipe("sk_piped\n");
  await viv(url, CONNECT);
  const file = path.join(dir, "key");
  await writeFile(file, "sk_file\r\n");
  await viv(url, [...CONNECT, "--secret", `@${file}`]);
  expect(seen.map(({ body }) => body)).toMatchObject([
    { authentication: { secret: "sk_piped" } },
    { authentication: { secret: "sk_file" } },
  ]);
});

test.each([
  ["of any form", "sk-test", "can be seen by other users"],
  ["of the form of a variable", "sk_test", "no variable of that name"],
])("a secret on the command line %s is refused, and not repeated", async (_what, secret, message) => {
  const { url, seen } = await service();
  const { code, out, err } = await viv(url, [...CONNECT, "--secret", secret]);
  expect({ code, out, seen }).toEqual({ code: 2, out: "", seen: [] });
  expect(err).toContain(message);
  expect(err).toContain("other users of this machine");
  expect(err).not.toContain(secret);
});

test("an empty secret is not sent", async () => {
  const { url, seen } = await service();
  pipe("\n");
  expect(await viv(url, CONNECT)).toMatchObject({ code: 2, err: expect.stringContaining("is empty") });
  expect(seen).toEqual([]);
});

test.each([
  [
    "a name that is taken",
    409,
    "conflict",
    "add",
    [connection],
    `viv connect rotate ${S1} ${origin} --name payments`,
  ],
  ["an origin that is taken", 409, "conflict", "add", [{ ...connection, name: "pay" }], "--name pay"],
  [
    "a name of a revoked one",
    409,
    "conflict",
    "add",
    [{ ...revoked, name: "payments" }],
    "until the session",
  ],
  ["a session without Connections", 409, "conflict", "add", [], "viv create --connect"],
  ["a revoked one to replace", 409, "conflict", "rotate", [{ ...revoked, name: "payments" }], "until"],
  ["an unknown name to replace", 404, "not_found", "rotate", [revoked], `viv connect ls ${S1}`],
  ["a service without a key", 503, "unavailable", "add", [], "docs/operate/secrets.md"],
] as const)("%s is refused with what to do", async (_what, status, code, verb, connections, hint) => {
  const { url } = await serve(({ method }, response) => {
    if (method === "GET") respond(response, 200, { connections });
    else respond(response, status, { error: "it is refused", code });
  });
  const failed = await viv(url, [...given(verb), ...SECRET], env);
  expect(failed).toMatchObject({ code: 1, out: "" });
  expect(failed.err).toContain("viv: it is refused\n");
  expect(failed.err).toContain(hint);
});

test("a refusal without a known remedy is reported alone", async () => {
  const { url } = await serve((_request, response) =>
    respond(response, 409, { error: "the session has failed", code: "conflict" }),
  );
  const { err } = await viv(url, fromEnv, env);
  expect(err).toBe("viv: the session has failed\n");
});

test("connections ls shows rules, states and use, and says that there are none", async () => {
  const { url } = await service();
  const { out } = await viv(url, ["connect", "ls", S1]);
  expect(out.split("\n").map((line) => line.split(/ {2,}/))).toEqual([
    ["NAME", "ORIGIN", "STATE", "METHODS", "PATHS", "EXPIRES", "USED"],
    ["search", origin, "revoked", "none", "none", at, expect.stringMatching(/^\d+\w$/)],
    ["payments", origin, "active", "GET", "/v1/*", at, "never"],
    [""],
  ]);
  const json = JSON.parse((await viv(url, ["connect", "ls", S1, "--json"])).out);
  expect(json).toEqual({ connections: [revoked, connection] });
  const none = await serve((_request, response) => respond(response, 200, { connections: [] }));
  expect((await viv(none.url, ["connect", "ls", S1])).out).toContain("No Connections");
});

test("a suspended Connection is shown as such, in the list and in the session", async () => {
  const connections = [{ ...connection, suspended: true }, revoked];
  const session = { session_id: S1, state: "live", size: "small", vcpus: 1, mem_mb: 1, connections };
  const { url } = await serve(({ url: asked }, response) =>
    respond(response, 200, asked?.endsWith("/connections") ? { connections } : session),
  );
  expect((await viv(url, ["connect", "ls", S1])).out).toContain("suspended");
  const { out } = await viv(url, ["get", S1], {}, { isInteractive: true });
  expect(out).toContain("payments (suspended), search (revoked)");
});

test("connections revoke revokes each name once", async () => {
  const { url, seen } = await service();
  const { code, out } = await viv(url, ["connect", "revoke", S1, "payments", "search", "payments"]);
  expect({ code, out }).toEqual({ code: 0, out: "payments\nsearch\n" });
  expect(seen.slice(1).map(({ method, url: asked }) => `${method} ${asked}`)).toEqual([
    `DELETE /v1/sessions/${S1}/connections/payments`,
    `DELETE /v1/sessions/${S1}/connections/search`,
  ]);
});

test("connections revoke revokes nothing when it does not know one of the names", async () => {
  const { url, seen } = await service();
  const { code, err } = await viv(url, ["connect", "revoke", S1, "payments", "serach"]);
  expect(code).toBe(1);
  expect(err).toContain('no Connection "serach"; nothing was revoked');
  expect(err).toContain("It has: search, payments.");
  expect(seen.map(({ method }) => method)).toEqual(["GET"]);
});

test.each([
  ["create", ["create"]],
  ["checkpoint start", ["checkpoint", "start", "chk_1"]],
])("%s --connect sends the Connections of a file with their secrets", async (_what, verb) => {
  const { url, seen } = await serve((_request, response) =>
    respond(response, 200, { session_id: S1, state: "creating", size: "small", vcpus: 1, mem_mb: 1 }),
  );
  const file = path.join(dir, "connections.json");
  const authentication = { type: "bearer", secret: { env: "PAYMENTS_KEY" } };
  await writeFile(file, JSON.stringify([{ name: "payments", origin, authentication }]));
  expect((await viv(url, [...verb, "--connect", file], env)).code).toBe(0);
  expect(seen[0]?.body).toEqual({
    connections: [{ name: "payments", origin, authentication: { type: "bearer", secret: "sk_test" } }],
  });
});

test("create takes one thing from its standard input", async () => {
  const { url, seen } = await service();
  const { code, err } = await viv(url, ["create", "--connect", "-", "--secret", "A=-"]);
  expect(code).toBe(2);
  expect(err).toContain("only one of --secret and --connect");
  expect(seen).toEqual([]);
});

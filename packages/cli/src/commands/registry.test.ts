/** `viv registry`: what it asks the service, and what it prints. */
import { writeFile } from "node:fs/promises";
import path from "node:path";
import { Readable } from "node:stream";
import { afterEach, expect, test, vi } from "vitest";
import { dir, inOwnDirectories, respond, serve, viv } from "../../test-support/program.ts";

inOwnDirectories();

const at = "2027-01-01T10:00:00.000Z";
const credential = {
  id: "rcr_1",
  name: "ghcr.io",
  registry_host: "ghcr.io",
  username: "octocat",
  secret_last4: "9f3k",
  created_at: at,
  updated_at: at,
};
const LOGIN = ["registry", "login", "ghcr.io", "--username", "octocat"];
const env = { GHCR_TOKEN: "ghp_test" };
const fromEnv = [...LOGIN, "--secret", "GHCR_TOKEN"];
const sent = { name: "ghcr.io", registry_host: "ghcr.io", username: "octocat", secret: "ghp_test" };

const service = (credentials: object[] = [credential]) =>
  serve(({ method }, response) => {
    if (method === "DELETE") response.writeHead(204).end();
    else if (method === "GET") respond(response, 200, { credentials });
    else respond(response, 201, credential);
  });

afterEach(() => vi.restoreAllMocks());
function pipe(text: string): void {
  vi.spyOn(process, "stdin", "get").mockReturnValue(Readable.from([Buffer.from(text)]) as never);
}

test("login stores the credential under the name of its host, which it prints in a pipe", async () => {
  const { url, seen } = await service();
  expect(await viv(url, fromEnv, env)).toEqual({ code: 0, out: "ghcr.io\n", err: "" });
  expect(seen).toEqual([
    { method: "POST", url: "/v1/registry-credentials", key: "Bearer viv_local", body: sent },
  ]);
});

test("login shows a human what it stored, without the secret", async () => {
  const { url } = await service();
  const { out } = await viv(url, fromEnv, env, { isInteractive: true });
  expect(out).toMatch(/^name +ghcr\.io\nregistry +ghcr\.io\nuser +octocat\nsecret +…9f3k\ncreated +2027/);
  expect(out).not.toContain("ghp_test");
});

test.each([
  ["Hub.Example.com:5000", [], "hub.example.com-5000"],
  ["ghcr.io", ["--name", "mine"], "mine"],
])("login at %s with %j is called %s", async (host, more, name) => {
  const { url, seen } = await service();
  await viv(url, ["registry", "login", host, "--username", "u", "--secret", "GHCR_TOKEN", ...more], env);
  expect(seen[0]?.body).toMatchObject({ name, registry_host: host });
});

test("login asks a human for the secret", async () => {
  const { url, seen } = await service();
  const { err } = await viv(url, LOGIN, {}, { answer: "ghp_typed" });
  expect(err).toBe("Password or token of octocat at ghcr.io: \n");
  expect(seen[0]?.body).toMatchObject({ secret: "ghp_typed" });
});

test("login reads the secret from its standard input, or all of a file but its last line end", async () => {
  const { url, seen } = await service();
  pipe("ghp_piped\n");
  await viv(url, LOGIN);
  const file = path.join(dir, "key.json");
  await writeFile(file, '{\n  "type": "service_account"\n}\n');
  await viv(url, [...LOGIN, "--secret", `@${file}`]);
  expect(seen.map(({ body }) => body)).toMatchObject([
    { secret: "ghp_piped" },
    { secret: '{\n  "type": "service_account"\n}' },
  ]);
});

test.each([
  ["of any form", "ghp-test", "can be seen by other users"],
  ["of the form of a variable", "ghp_test", "no variable of that name"],
])("a secret on the command line %s is refused, and not repeated", async (_what, secret, message) => {
  const { url, seen } = await service();
  const { code, out, err } = await viv(url, [...LOGIN, "--secret", secret]);
  expect({ code, out, seen }).toEqual({ code: 2, out: "", seen: [] });
  expect(err).toContain(message);
  expect(err).not.toContain(secret);
});

test("an empty secret is not sent", async () => {
  const { url, seen } = await service();
  pipe("\n");
  expect(await viv(url, LOGIN)).toMatchObject({ code: 2, err: expect.stringContaining("is empty") });
  expect(seen).toEqual([]);
});

test.each([
  ["a name that is taken", 409, "conflict", "name: another credential is called", "--name ghcr.io --replace"],
  ["a service without a key", 503, "unavailable", "secret: this server has", "docs/operate/secrets.md"],
])("%s is refused with what to do", async (_what, status, code, error, hint) => {
  const { url } = await serve((_request, response) => respond(response, status, { error, code }));
  const failed = await viv(url, fromEnv, env);
  expect(failed).toMatchObject({ code: 1, out: "" });
  expect(failed.err).toContain(`viv: ${error}\n`);
  expect(failed.err).toContain(hint);
});

test("a refusal without a known remedy is reported alone", async () => {
  const { url } = await serve((_request, response) =>
    respond(response, 409, { error: "the organisation has 100 credentials", code: "conflict" }),
  );
  expect((await viv(url, fromEnv, env)).err).toBe("viv: the organisation has 100 credentials\n");
});

test("login --replace deletes the one of that name only when it is there", async () => {
  let isTaken = true;
  const { url, seen } = await serve(({ method }, response) => {
    if (method === "DELETE") {
      isTaken = false;
      response.writeHead(204).end();
    } else if (isTaken) respond(response, 409, { error: "name: another one", code: "conflict" });
    else respond(response, 201, credential);
  });
  expect((await viv(url, [...fromEnv, "--replace"], env)).code).toBe(0);
  expect(seen.map(({ method, url: asked }) => `${method} ${asked}`)).toEqual([
    "POST /v1/registry-credentials",
    "DELETE /v1/registry-credentials/ghcr.io",
    "POST /v1/registry-credentials",
  ]);
  seen.length = 0;
  expect((await viv(url, [...fromEnv, "--replace"], env)).code).toBe(0);
  expect(seen.map(({ method }) => method)).toEqual(["POST"]);
});

test("login --replace deletes nothing when the service refuses for another reason", async () => {
  const { url, seen } = await serve((_request, response) =>
    respond(response, 400, { error: "registry_host: must be", code: "validation" }),
  );
  expect((await viv(url, [...fromEnv, "--replace"], env)).code).not.toBe(0);
  expect(seen.map(({ method }) => method)).toEqual(["POST"]);
});

test("ls shows registries and users, and the project only of those that have one", async () => {
  const { url } = await service();
  const { out } = await viv(url, ["registry", "ls"]);
  expect(out.split("\n").map((line) => line.split(/ {2,}/))).toEqual([
    ["NAME", "REGISTRY", "USER", "SECRET", "AGE"],
    ["ghcr.io", "ghcr.io", "octocat", "…9f3k", expect.stringMatching(/^\d+\w$/)],
    [""],
  ]);
  const short = { ...credential, secret_last4: undefined, project_id: "prj_1" };
  const other = await service([short]);
  expect((await viv(other.url, ["registry", "ls"])).out).toMatch(/PROJECT\n.* … .* prj_1\n$/);
  const json = JSON.parse((await viv(url, ["registry", "ls", "--json"])).out);
  expect(json).toEqual({ credentials: [credential] });
});

test("what a user name holds does not steer the human's terminal", async () => {
  const { url } = await service([{ ...credential, username: "a\u001b[2Jb\u009b31m" }]);
  const { out } = await viv(url, ["registry", "ls"], {}, { isInteractive: true });
  expect(out).toContain("ab");
  expect(out).not.toContain("\u001b");
});

test("logout deletes each name once", async () => {
  const { url, seen } = await service([credential, { ...credential, name: "hub" }]);
  const { code, out } = await viv(url, ["registry", "logout", "hub", "ghcr.io", "hub"]);
  expect({ code, out }).toEqual({ code: 0, out: "hub\nghcr.io\n" });
  expect(seen.slice(1).map(({ method, url: asked }) => `${method} ${asked}`)).toEqual([
    "DELETE /v1/registry-credentials/hub",
    "DELETE /v1/registry-credentials/ghcr.io",
  ]);
});

test("logout deletes nothing when it does not know one of the names", async () => {
  const { url, seen } = await service();
  const { code, err } = await viv(url, ["registry", "logout", "ghcr.io", "gchr.io"]);
  expect(code).toBe(1);
  expect(err).toContain('no credential is called "gchr.io"; nothing was deleted');
  expect(err).toContain("There are: ghcr.io.");
  expect(seen.map(({ method }) => method)).toEqual(["GET"]);
});

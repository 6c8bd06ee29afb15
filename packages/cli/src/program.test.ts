import { writeFile } from "node:fs/promises";
import path from "node:path";
import { describe, expect, test } from "vitest";
import {
  dir,
  inOwnDirectories,
  respond,
  S1,
  S2,
  serve,
  stopServing,
  stream,
  viv,
} from "../test-support/program.ts";

inOwnDirectories();

const record = { session_id: S1, state: "creating", size: "small", vcpus: 1, mem_mb: 1024 };

test("run creates a throwaway session, streams the code's output and exits with its code", async () => {
  const { url, seen } = await serve((request, response) => {
    if (request.url === "/v1/sessions") respond(response, 200, record);
    else if (request.method === "PUT") respond(response, 200, { path: "/workspace/main.py", bytes: 9 });
    else stream(response, "42\n", { exit_code: 7 });
  });
  const file = path.join(dir, "a.py");
  await writeFile(file, "print(42)");
  const result = await viv(url, ["run", "--size", "small", "--timeout", "5s", file]);
  expect(result).toMatchObject({ code: 7, out: "42\n", err: expect.stringContaining(url) });
  expect(seen).toEqual([
    {
      method: "POST",
      url: "/v1/sessions",
      key: "Bearer viv_local",
      body: { size: "small", destroy_on_completion: true },
    },
    {
      method: "PUT",
      url: `/v1/sessions/${S1}/files`,
      key: "Bearer viv_local",
      body: { path: "main.py", content: "print(42)" },
    },
    {
      method: "POST",
      url: `/v1/sessions/${S1}/exec?stream=true`,
      key: "Bearer viv_local",
      body: { command: ["python3", "main.py"], timeout_ms: 5000 },
    },
  ]);
});

test.each([
  ["SIGINT", 130],
  ["SIGTERM", 143],
] as const)(
  "what %s ends has the exit code that shells give it, and nothing to say",
  async (signal, code) => {
    const { url } = await serve(() => process.emit(signal, signal));
    expect(await viv(url, ["exec", S1, "--", "sleep", "9"])).toEqual({ code, out: "", err: "" });
    // A command that would run for ever is rightly ended with Ctrl-C.
    for (const endless of [["watch"], ["events", "-f"], ["egress", "log", S1, "-f"]])
      expect((await viv(url, endless)).code).toBe(code === 130 ? 0 : code);
  },
);

test("run ends with 124 and a word about it when the program is timed out", async () => {
  const { url } = await serve((request, response) => {
    if (request.url === "/v1/sessions") respond(response, 200, record);
    else if (request.method === "PUT") respond(response, 200, { path: "/workspace/main.ts", bytes: 0 });
    else stream(response, "", { exit_code: -1, timed_out: true });
  });
  const file = path.join(dir, "a.ts");
  await writeFile(file, "");
  expect(await viv(url, ["run", file])).toMatchObject({ code: 124, err: expect.stringContaining("timeout") });
});

test("run removes the session when its program could not be started, and ends with 125", async () => {
  const { url, seen } = await serve((request, response) => {
    if (request.url === "/v1/sessions") respond(response, 200, record);
    else if (request.method === "DELETE") response.writeHead(204).end();
    else respond(response, 409, { error: "session has failed", code: "conflict" });
  });
  const file = path.join(dir, "a.js");
  await writeFile(file, "");
  expect(await viv(url, ["run", file])).toMatchObject({
    code: 125,
    err: expect.stringContaining("has failed"),
  });
  expect(seen.at(-1)).toMatchObject({ method: "DELETE", url: `/v1/sessions/${S1}` });
});

test("run sends code with dependencies to the buffered endpoint", async () => {
  const { url, seen } = await serve((_request, response) =>
    respond(response, 200, {
      stdout: "aGk=",
      stdout_encoding: "base64",
      stderr: "e",
      exit_code: 0,
      duration_ms: 1,
      timed_out: false,
      phase: "done",
    }),
  );
  const file = path.join(dir, "a.mjs");
  await writeFile(file, "1");
  const argv = ["run", "--quiet", "--deps", "is-odd", file];
  expect(await viv(url, argv)).toEqual({ code: 0, out: "hi", err: "e" });
  expect(seen).toHaveLength(1);
  const body = { language: "node", code: "1", dependencies: ["is-odd"] };
  expect(seen[0]).toMatchObject({ url: "/v1/sessions/exec", body });
});

test("run does not start a service when asked not to, and says how to", async () => {
  const file = path.join(dir, "a.py");
  await writeFile(file, "");
  const { url } = await serve(() => {});
  stopServing();
  expect(await viv(url, ["run", "--no-start", file])).toMatchObject({
    code: 125,
    err: expect.stringContaining("viv up"),
  });
});

test("exec passes everything after the id on, also what looks like an option", async () => {
  const { url, seen } = await serve((_request, response) => stream(response, "out", { exit_code: 3 }));
  expect(await viv(url, ["exec", "--cwd", "/tmp", S1, "--", "ls", "-l", "--json"])).toMatchObject({
    code: 3,
    out: "out",
  });
  expect(seen[0]?.body).toEqual({ command: ["ls", "-l", "--json"], cwd: "/tmp" });
});

test("create prints the id for scripts and sends every option", async () => {
  const { url, seen } = await serve((_request, response) => respond(response, 200, record));
  const options = ["--env", "A=1", "--env", "B=2", "--label", "k=v", "--no-sudo", "--idle-timeout", "5m"];
  expect(await viv(url, ["create", ...options])).toEqual({ code: 0, out: `${S1}\n`, err: "" });
  expect(seen[0]?.body).toEqual({
    env: { A: "1", B: "2" },
    labels: { k: "v" },
    no_sudo: true,
    idle_timeout_ms: 300_000,
  });
});

test("ls --json prints what the service sent", async () => {
  const { url } = await serve((_request, response) => respond(response, 200, { sessions: [record] }));
  expect(JSON.parse((await viv(url, ["ls", "--json"])).out)).toEqual({ sessions: [record] });
});

test("ls --state ended reads further pages until the limit", async () => {
  const { url, seen } = await serve((_request, response) =>
    respond(response, 200, { sessions: [record, record], next_cursor: "c" }),
  );
  const { out } = await viv(url, ["ls", "--state", "ended", "--limit", "3", "--json"]);
  expect(JSON.parse(out).sessions).toHaveLength(3);
  expect(seen.map((request) => request.url)).toEqual([
    "/v1/sessions?state=ended&limit=3",
    "/v1/sessions?state=ended&limit=3&cursor=c",
  ]);
});

test("rm continues after an id that is gone, and says so with its code", async () => {
  const { url } = await serve((request, response) => {
    if (request.url?.includes(S2)) respond(response, 404, { error: "session not found", code: "not_found" });
    else response.writeHead(204).end();
  });
  expect(await viv(url, ["rm", S2, S1])).toMatchObject({
    code: 1,
    out: `${S1}\n`,
    err: expect.stringContaining("session not found"),
  });
});

test("a refused key says where keys come from", async () => {
  const { url } = await serve((_request, response) =>
    respond(
      response,
      401,
      { error: "the API key is unknown", code: "unauthenticated" },
      { "x-request-id": "r1" },
    ),
  );
  expect(await viv(url, ["ls"])).toMatchObject({ code: 1, err: expect.stringContaining("bootstrap.key") });
  const withKey = await viv(url, ["ls"], { VIV_API_KEY: "viv_wrong" });
  expect(withKey.err).toContain("VIV_API_KEY was refused");
  expect(withKey.err).toContain("request r1");
});

test("the local key goes to the local service alone", async () => {
  const { url, seen } = await serve((_request, response) => respond(response, 200, { sessions: [] }));
  await viv(url, ["ls"]);
  // The same socket under an address that does not count as local.
  const { port } = new URL(url);
  await viv(`http://[::ffff:127.0.0.1]:${port}`, ["ls"]);
  expect(seen.map(({ key }) => key)).toEqual(["Bearer viv_local", undefined]);
});

test.each([
  [["frob"]],
  [["exec"]],
  [["exec", S1]],
  [["exec", S1, "--"]],
  [["exec", "-i", S1, "--"]],
  [["start", "--name", "web", S1, "--"]],
  [["ls", "--state", "asleep"]],
  [["create", "--env", "x"]],
  [["run", "a.rb"]],
  [["pause", "--wake-at", "noon", S1]],
  [["fork", "--count", "0", S1]],
  [["restore", S1]],
  [["checkpoint"]],
  [["checkpoint", "frob"]],
  [["template", "save", S1]],
  [["template", "import"]],
  [["template", "import", "debian"]],
  [["template", "log"]],
  [["volume", "create", "--size", "0"]],
  [["volume", "attach"]],
  [["volume", "grow", "vol_1"]],
  [["volume", "grow", "vol_1", "half"]],
  [["create", "--paused-ttl", "0"]],
  [["create", "--on-detach", "explode"]],
  [["rm", S1, `${S1}:notes.txt`]],
  [["rm", "-r", S1]],
  [["mkdir", `${S1}:a`, "no-colon"]],
  [["cat", "no-colon"]],
  [["ls", "no-colon"]],
  [["cp", "a", "b"]],
  [["mv", `${S1}:a`, `${S2}:b`]],
  [["find", "--limit", "10001", S1, "*"]],
  [["grep", "-C", "11", "x", S1]],
  [["start", S1, "--", "true"]],
  [["logs", "--follow", "--json", S1, "web"]],
  [["exec", "-i", "--json", S1, "--", "true"]],
  [["shell", S1]],
  [["shell", "--detach-key", "x", S1]],
  [["shell", "--new", "--terminal", "a", S1]],
  [["expose", S1]],
  [["expose", S1, "65536"]],
  [["unexpose", S1, "web"]],
  [["open", S1, "0"]],
  [["cap", S1, "0"]],
  [["cap", S1, "lots"]],
  [["cap"]],
  [["cap", "--org", "1MiB", S1]],
  [["cap", "--org", "lots"]],
  [["create", "--egress", "alow"]],
  [["create", "--egress-cap", "0"]],
  [["egress"]],
  [["egress", "set", S1]],
  [["egress", "set", "--mode", "alow", S1]],
  [["egress", "set", "--mode", "deny", "--allow-file", "/nowhere/hosts", S1]],
  [["egress", "log", "--since", "noon", S1]],
  [["egress", "log", "--limit", "0", S1]],
  [["connect", "add", S1]],
  [["connect", "add", S1, "https://api.example.com", "--name", "a"]],
  [["connect", "add", S1, "https://api.example.com", "--allow", "GET /a"]],
  [["connect", "add", S1, "https://api.example.com", "--name", "a", "--allow", "GET"]],
  [["connect", "add", S1, "https://api.example.com", "--name", "a", "--allow", "GET /a", "--ttl", "soon"]],
  [["connect"]],
  [["connect", "revoke", S1]],
  [["create", "--connect", "/nowhere/connections.json"]],
  [["registry"]],
  [["registry", "login", "ghcr.io"]],
  [["registry", "login", "--username", "me"]],
  [["registry", "login", "ghcr.io", "--username", "me", "--secret", "not-a-variable"]],
  [["registry", "logout"]],
])("%j is a usage error", async (argv) => {
  const { code, err } = await viv("http://127.0.0.1:1", argv);
  expect({ code, isSilent: err === "" }).toEqual({ code: 2, isSilent: false });
});

test.each([
  ["up"],
  ["down"],
  ["run"],
  ["create"],
  ["ls"],
  ["get"],
  ["exec"],
  ["pause"],
  ["resume"],
  ["fork"],
  ["checkpoint create"],
  ["checkpoint ls"],
  ["checkpoint start"],
  ["checkpoint rm"],
  ["restore"],
  ["template save"],
  ["template import"],
  ["template log"],
  ["template ls"],
  ["template rm"],
  ["volume create"],
  ["volume ls"],
  ["volume attach"],
  ["volume grow"],
  ["volume rm"],
  ["tree"],
  ["watch"],
  ["rm"],
  ["doctor"],
  ["shell"],
  ["ssh"],
  ["ssh-config"],
  ["tunnel"],
  ["start"],
  ["ps"],
  ["logs"],
  ["kill"],
  ["cp"],
  ["cat"],
  ["edit"],
  ["find"],
  ["grep"],
  ["mkdir"],
  ["mv"],
  ["expose"],
  ["unexpose"],
  ["open"],
  ["egress get"],
  ["egress set"],
  ["egress log"],
  ["cap"],
  ["connect add"],
  ["connect ls"],
  ["connect rotate"],
  ["connect revoke"],
  ["registry login"],
  ["registry ls"],
  ["registry logout"],
])("%s --help has examples", async (verb) => {
  const { code, out } = await viv("http://127.0.0.1:1", [...verb.split(" "), "--help"]);
  expect(code).toBe(0);
  expect(out).toContain(`Examples:\n  $ `);
});

describe("the names of a session's files do not steer the human's terminal", () => {
  const EVIL = "\u001b]0;mine\u0007\u001b[2J\u009b31m";
  const find = (...records: string[][]) => records.flat().join("\0").concat("\0");
  const ROOT = ["d755", "0", "1", "", ""];
  /** The facts that can be known without a machine: the output of its `find`, and empty output for everything else. */
  const session = (listing: string) =>
    serve((request, response) => {
      const isScan = JSON.stringify(request.body).includes("-printf");
      stream(response, isScan ? listing : "", { exit_code: 0 });
    });

  test.each([
    ["a socket that is left out of a copy", find(ROOT, ["s644", "0", "1", `x${EVIL}`, ""]), "was left out"],
    ["a file that it does not have", find(ROOT, ["f644", "0", "1", `../x${EVIL}`, ""]), "not its own"],
  ])("%s", async (_what, listing, said) => {
    const { url } = await session(listing);
    const { code, err } = await viv(url, ["cp", "-r", `${S1}:src`, path.join(dir, "to")]);
    expect([code, err]).toEqual([1, expect.stringContaining(said)]);
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what this is about
    expect(err).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/);
  });
});

test("version names viv and the service that answers, also as JSON", async () => {
  const { url } = await serve(() => {});
  const shown = JSON.parse((await viv(url, ["version", "--json"])).out);
  expect(shown).toMatchObject({
    viv: expect.stringMatching(/^\d+\.\d+\.\d+/),
    schema: expect.any(Number),
    agent_generation: 2,
    service: { url, isolation: "kvm" },
  });
  expect(shown).not.toHaveProperty("parts");
  stopServing();
  expect((await viv(url, ["version"])).out).toMatch(/^service +none answers$/m);
});

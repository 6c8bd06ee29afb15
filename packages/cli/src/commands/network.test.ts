import { chmod, mkdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { afterEach, expect, test, vi } from "vitest";
import {
  dir,
  inOwnDirectories,
  respond,
  S1,
  type Seen,
  serve,
  stream,
  viv,
} from "../../test-support/program.ts";

inOwnDirectories();

const cap = {
  session_id: S1,
  egress_cap_bytes: 10_485_760,
  today_bytes: 1_048_576,
  date: "2027-03-01",
  wake_on_http: true,
};
const URL_WITH_TOKEN = `http://8000-${S1}.localhost:7401/?t=tok`;
const exposed = {
  session_id: S1,
  port: 8000,
  preview_url: URL_WITH_TOKEN,
  visibility: "token",
  auth: "none",
  result: "created",
  ingress_token: "tok",
};
const policy = { session_id: S1, mode: "deny", allow: ["pypi.org", "*.example.com:8443"] };

afterEach(() => vi.unstubAllEnvs());

const answering = (body: unknown) => serve((_request, response) => respond(response, 200, body));
const asked = (seen: Seen[]) => seen.map(({ method, url, body }) => [`${method} ${url}`, body]);

/** A service whose session has these exposed ports, and that exposes port 8000 as said. */
const serveRecord = (previews: object[], answer: object = exposed) =>
  serve(({ method }, response) =>
    respond(response, 200, method === "GET" ? { session_id: S1, exposed_previews: previews } : answer),
  );

/** A stand-in for the browser: records its arguments, and ends with the code. */
async function installBrowser(code: number): Promise<{ opened: () => Promise<string> }> {
  const bin = path.join(dir, "bin");
  const record = path.join(dir, "opened");
  await mkdir(bin);
  for (const name of ["xdg-open", "open"]) {
    await writeFile(path.join(bin, name), `#!/bin/sh\nprintf %s "$1" > ${record}\nexit ${code}\n`);
    await chmod(path.join(bin, name), 0o755);
  }
  vi.stubEnv("PATH", `${bin}:${process.env.PATH}`);
  return { opened: () => readFile(record, "utf8") };
}

const SCREEN = { DISPLAY: ":0" };
const HUMAN = { isInteractive: true };

test.each([
  [["expose", S1, "8000"], { port: 8000, visibility: "token", auth: "none" }],
  [
    ["expose", "--public", "--bearer", "--login-url", "https://l.example/", "--rotate", S1, "8000"],
    { port: 8000, visibility: "public", auth: "bearer", login_url: "https://l.example/", rotate: true },
  ],
])("%j sends what was asked for and prints the URL", async (argv, body) => {
  const { url, seen } = await answering(exposed);
  expect(await viv(url, argv)).toEqual({ code: 0, out: `${URL_WITH_TOKEN}\n`, err: "" });
  expect(asked(seen)).toEqual([[`POST /v1/sessions/${S1}/expose`, body]]);
});

test("expose prints a bearer token when it is made, and later how to get another", async () => {
  const bearer = { ...exposed, auth: "bearer" };
  const made = await answering({ ...bearer, auth_token: "secret" });
  const first = await viv(made.url, ["expose", "--bearer", S1, "8000"]);
  expect(first).toMatchObject({ out: `${URL_WITH_TOKEN}\n`, err: expect.stringContaining(": secret\n") });
  const kept = await answering({ ...bearer, result: "unchanged" });
  expect((await viv(kept.url, ["expose", "--bearer", S1, "8000"])).err).toContain("--rotate");
});

test("expose prints everything for a human, and JSON on request", async () => {
  const { url } = await answering({ ...exposed, login_url: "https://l.example/" });
  const { out } = await viv(url, ["expose", S1, "8000"], {}, HUMAN);
  expect(out).toMatch(/^url +http:\/\/8000-s1a{19}\.localhost:7401\/\?t=tok\nopen to +who has the token/);
  expect(out).toMatch(/^login url +https:\/\/l\.example\/$/m);
  const json = await viv(url, ["expose", "--json", S1, "8000"], {}, HUMAN);
  expect(JSON.parse(json.out)).toEqual({ ...exposed, login_url: "https://l.example/" });
});

test("unexpose says when there was nothing to close", async () => {
  const closed = await answering({ ok: true });
  expect(await viv(closed.url, ["unexpose", S1, "8000"])).toEqual({ code: 0, out: "8000\n", err: "" });
  expect(asked(closed.seen)).toEqual([[`POST /v1/sessions/${S1}/unexpose`, { port: 8000 }]]);
  const none = await answering({ ok: false });
  expect(await viv(none.url, ["unexpose", S1, "8000"])).toMatchObject({
    code: 0,
    out: "8000\n",
    err: "viv: port 8000 was not exposed\n",
  });
  expect((await viv(none.url, ["unexpose", "--json", S1, "8000"])).out).toBe('{"ok":false}\n');
});

test("open hands the URL to the browser of the screen", async () => {
  const { opened } = await installBrowser(0);
  const known = { port: 8000, visibility: "token", auth: "none", preview_url: "http://x" };
  const { url, seen } = await serveRecord([known], { ...exposed, result: "unchanged" });
  expect(await viv(url, ["open", S1, "8000"], SCREEN, HUMAN)).toEqual({
    code: 0,
    out: "",
    err: `viv: opened http://8000-${S1}.localhost:7401\n`,
  });
  expect(await opened()).toBe(URL_WITH_TOKEN);
  expect(asked(seen).at(-1)).toEqual([
    `POST /v1/sessions/${S1}/expose`,
    { port: 8000, visibility: "token", auth: "none" },
  ]);
});

test("open prints the URL where no screen is, and where no browser works or is found", async () => {
  const { url } = await serveRecord([], { ...exposed, result: "unchanged" });
  const printed = { code: 0, out: `${URL_WITH_TOKEN}\n`, err: "" };
  await installBrowser(3);
  expect(await viv(url, ["open", S1, "8000"], SCREEN, HUMAN)).toEqual(printed);
  vi.stubEnv("PATH", "/nowhere");
  expect(await viv(url, ["open", S1, "8000"], SCREEN, HUMAN)).toEqual(printed);
});

test("open prints the URL without a terminal, and opens no browser", async () => {
  const { opened } = await installBrowser(0);
  const { url } = await serveRecord([], { ...exposed, result: "unchanged" });
  expect(await viv(url, ["open", S1, "8000"], SCREEN)).toEqual({
    code: 0,
    out: `${URL_WITH_TOKEN}\n`,
    err: "",
  });
  await expect(opened()).rejects.toMatchObject({ code: "ENOENT" });
});

test("open exposes a port that is not, and says how to close it", async () => {
  const { url, seen } = await serveRecord([]);
  const { out, err } = await viv(url, ["open", S1, "8000"]);
  expect({ out, err }).toEqual({
    out: `${URL_WITH_TOKEN}\n`,
    err: expect.stringContaining(`viv unexpose ${S1} 8000`),
  });
  expect(asked(seen).at(-1)).toEqual([`POST /v1/sessions/${S1}/expose`, { port: 8000 }]);
});

test("open refuses a port that browsers cannot be let in to, and changes nothing", async () => {
  const { url, seen } = await serveRecord([{ port: 8000, visibility: "public", auth: "bearer" }]);
  expect(await viv(url, ["open", S1, "8000"])).toMatchObject({
    code: 1,
    out: "",
    err: expect.stringContaining("viv expose SESSION PORT"),
  });
  expect(seen.map(({ method }) => method)).toEqual(["GET"]);
});

test.each([
  [["cap", S1], `GET /v1/sessions/${S1}/egress-cap`, ""],
  [["cap", S1, "10MiB"], `PATCH /v1/sessions/${S1}`, { egress_cap_bytes: 10_485_760 }],
  [["cap", S1, "none"], `PATCH /v1/sessions/${S1}`, { egress_cap_bytes: 0 }],
])("%j shows the cap and what was sent", async (argv, request, body) => {
  const { url, seen } = await answering(cap);
  const { code, out, err } = await viv(url, argv);
  expect({ code, err }).toEqual({ code: 0, err: "" });
  expect(out.split("\n")).toEqual([
    "cap            10 MiB a day",
    "sent           1.0 MiB (10 % of the cap)",
    "day            2027-03-01 (UTC)",
    "wakes on http  yes",
    "",
  ]);
  expect(asked(seen)).toEqual([[request, body]]);
  expect(JSON.parse((await viv(url, [...argv, "--json"])).out)).toEqual(cap);
});

test("a session without a cap says so", async () => {
  const { url } = await answering({ ...cap, egress_cap_bytes: 0 });
  expect((await viv(url, ["cap", S1])).out).toMatch(/^cap +none\nsent +1\.0 MiB\n/);
});

const orgCap = {
  cap_bytes: 10_485_760,
  override: true,
  default_cap_bytes: 0,
  today_bytes: 1_048_576,
  date: "2027-03-01",
};

test.each([
  [["cap", "--org"], "GET", ""],
  [["cap", "--org", "10MiB"], "PUT", { cap_bytes: 10_485_760 }],
  [["cap", "--org", "none"], "PUT", { cap_bytes: 0 }],
  [["cap", "--org", "default"], "PUT", { cap_bytes: null }],
])("%j shows the organisation's cap and what was sent", async (argv, method, body) => {
  const { url, seen } = await answering(orgCap);
  const { code, out, err } = await viv(url, argv);
  expect({ code, err }).toEqual({ code: 0, err: "" });
  expect(out.split("\n")).toEqual([
    "cap      10 MiB a day",
    "default  none",
    "sent     1.0 MiB (10 % of the cap)",
    "day      2027-03-01 (UTC)",
    "",
  ]);
  expect(asked(seen)).toEqual([[`${method} /v1/org/egress-cap`, body]]);
  expect(JSON.parse((await viv(url, [...argv, "--json"])).out)).toEqual(orgCap);
});

test("an organisation that chose no cap is shown the operator's default", async () => {
  const { url } = await answering({ ...orgCap, override: false, default_cap_bytes: 10_485_760 });
  const { out } = await viv(url, ["cap", "--org"]);
  expect(out).toMatch(/^cap +10 MiB a day \(the default\)\ndefault +10 MiB a day\n/);
});

test("a capped organisation's refusal says where to look", async () => {
  const { url } = await serve((_request, response) =>
    respond(response, 409, { error: "sent as much as they may", code: "egress_capped" }),
  );
  expect(await viv(url, ["create"])).toMatchObject({
    code: 1,
    err: expect.stringContaining("viv cap --org"),
  });
});

const record = { session_id: S1, state: "creating", size: "small", vcpus: 1, mem_mb: 1024 };
test.each([
  [[], {}],
  [["--egress", "deny"], { egress: { mode: "deny" } }],
  [["--egress", "allow"], { egress: { mode: "allow" } }],
  [
    ["--allow", "a.example,b.example:8443", "--allow", "*.c.example"],
    { egress: { mode: "deny", allow: ["a.example", "b.example:8443", "*.c.example"] } },
  ],
  [["--egress", "allow", "--allow", "a.example"], { egress: { mode: "allow", allow: ["a.example"] } }],
  [["--egress-cap", "1.5GiB"], { egress_cap_bytes: 1_610_612_736 }],
  [["--egress-cap", "none"], { egress_cap_bytes: 0 }],
  [["--no-wake-on-http"], { wake_on_http: false }],
])("create %j asks for that network", async (options, body) => {
  const { url, seen } = await answering(record);
  expect(await viv(url, ["create", ...options])).toEqual({ code: 0, out: `${S1}\n`, err: "" });
  expect(asked(seen)).toEqual([["POST /v1/sessions", body]]);
});

test("run gives its machine the network of its options", async () => {
  const { url, seen } = await serve((request, response) => {
    if (request.url === "/v1/sessions") respond(response, 200, record);
    else if (request.method === "PUT") respond(response, 200, { path: "/workspace/main.py", bytes: 0 });
    else stream(response, "", { exit_code: 0 });
  });
  const file = path.join(dir, "a.py");
  await writeFile(file, "");
  const { code } = await viv(url, ["run", "--allow", "pypi.org", "--egress-cap", "1kB", file]);
  expect(code).toBe(0);
  expect(seen[0]?.body).toEqual({
    egress: { mode: "deny", allow: ["pypi.org"] },
    egress_cap_bytes: 1000,
    destroy_on_completion: true,
  });
});

test.each([[["--egress", "deny"]], [["--allow", "pypi.org"]], [["--egress-cap", "1kB"]]])(
  "run refuses %j where it could not keep to it, and asks for nothing",
  async (options) => {
    const { url, seen } = await answering({});
    const file = path.join(dir, "a.py");
    await writeFile(file, "");
    for (const buffered of [["--json"], ["--deps", "is-odd"]]) {
      expect(await viv(url, ["run", ...options, ...buffered, file])).toMatchObject({
        code: 2,
        err: expect.stringContaining("--egress"),
      });
    }
    expect(seen).toEqual([]);
  },
);

test("egress get shows the policy", async () => {
  const { url, seen } = await answering(policy);
  expect((await viv(url, ["egress", "get", S1])).out).toBe(
    "mode   deny\nallow  pypi.org\nallow  *.example.com:8443\n",
  );
  expect(JSON.parse((await viv(url, ["egress", "get", "--json", S1])).out)).toEqual(policy);
  expect(asked(seen)[0]).toEqual([`GET /v1/sessions/${S1}/egress`, ""]);
});

test("egress set replaces the policy with the entries of options and file", async () => {
  const { url, seen } = await answering(policy);
  const file = path.join(dir, "hosts");
  await writeFile(file, "# mirrors\nPyPI.org\n\n  8.8.4.4:22 # ssh\r\n");
  const entries = ["--allow", "a.example,b.example", "--allow", "*.example.com:8443"];
  const { code, out } = await viv(url, [
    "egress",
    "set",
    "--mode",
    "deny",
    ...entries,
    "--allow-file",
    file,
    S1,
  ]);
  expect({ code, out }).toEqual({
    code: 0,
    out: "mode   deny\nallow  pypi.org\nallow  *.example.com:8443\n",
  });
  await viv(url, ["egress", "set", "--mode", "allow", S1]);
  const all = ["a.example", "b.example", "*.example.com:8443", "PyPI.org", "8.8.4.4:22"];
  expect(asked(seen)).toEqual([
    [`POST /v1/sessions/${S1}/egress`, { mode: "deny", allow: all }],
    [`POST /v1/sessions/${S1}/egress`, { mode: "allow", allow: [] }],
  ]);
});

test("get shows the exposed ports of a session", async () => {
  const preview_url = `http://8000-${S1}.localhost:7401`;
  const { url } = await answering({
    ...{ session_id: S1, state: "live", size: "small", vcpus: 1, mem_mb: 1024 },
    exposed_previews: [{ port: 8000, preview_url, visibility: "public", auth: "bearer" }],
  });
  expect((await viv(url, ["get", S1])).out).toMatch(
    /^port 8000 +http:\/\/8000-s1a{19}\.localhost:7401 \(public, bearer\)$/m,
  );
});

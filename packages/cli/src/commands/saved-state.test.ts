import { expect, test } from "vitest";
import { inOwnDirectories, respond, S1, serve, viv } from "../../test-support/program.ts";

inOwnDirectories();

const at = "2027-01-01T10:00:00.000Z";
const session = {
  session_id: S1,
  state: "live",
  created_at: at,
  last_active_at: at,
  size: "small",
  vcpus: 1,
  mem_mb: 1024,
};
const checkpoint = {
  checkpoint_id: "chk_1",
  parent_session_id: S1,
  session_id: S1,
  name: "before",
  size_bytes: 2048,
  created_at: at,
};
const template = {
  name: "tools",
  kind: "user",
  created_at: at,
  status: "ready",
  version: "2",
  versions: ["2", "1"],
  memory: true,
};
const volume = { id: "vol_1", size_gb: 2, created_at: at, attached: false };
const fork = { parent_session_id: S1, children: ["c1", "c2"] };

const answering = (body: unknown) => serve((_request, response) => respond(response, 200, body));
const asked = (seen: { method?: string | undefined; url?: string | undefined; body: unknown }[]) =>
  seen.map(({ method, url, body }) => [`${method} ${url}`, body]);

test.each([
  [["pause", S1], session, `POST /v1/sessions/${S1}/pause`, {}, `${S1}\n`],
  [
    ["pause", "--wake-at", "2027-01-01T09:30:00Z", S1],
    session,
    `POST /v1/sessions/${S1}/pause`,
    { wake_at: "2027-01-01T09:30:00.000Z" },
    `${S1}\n`,
  ],
  [["resume", S1], session, `POST /v1/sessions/${S1}/resume`, {}, `${S1}\n`],
  [["archive", "retry", S1], { status: "pending" }, `POST /v1/sessions/${S1}/archive/retry`, {}, "pending\n"],
  [["fork", S1], fork, `POST /v1/sessions/${S1}/fork`, {}, "c1\nc2\n"],
  [["fork", "--count", "2", S1], fork, `POST /v1/sessions/${S1}/fork`, { count: 2 }, "c1\nc2\n"],
  [
    ["restore", S1, "before"],
    session,
    `POST /v1/sessions/${S1}/restore`,
    { checkpoint_id: "before" },
    `${S1}\n`,
  ],
  [
    ["checkpoint", "create", "--name", "before", "--label", "k=v", S1],
    checkpoint,
    `POST /v1/sessions/${S1}/checkpoints`,
    { name: "before", labels: { k: "v" } },
    "chk_1\n",
  ],
  [
    ["checkpoint", "start", "--name", "two", "--env", "A=1", "--paused-ttl", "never", "chk_1"],
    session,
    "POST /v1/checkpoints/chk_1/sessions",
    { name: "two", env: { A: "1" }, paused_ttl_ms: -1 },
    `${S1}\n`,
  ],
  [
    ["template", "save", "--description", "mine", S1, "tools"],
    template,
    `POST /v1/sessions/${S1}/templates`,
    { name: "tools", description: "mine" },
    "tools@2\n",
  ],
  [["volume", "create"], volume, "POST /v1/volumes", {}, "vol_1\n"],
  [["volume", "create", "--size", "2GB"], volume, "POST /v1/volumes", { size_gb: 2 }, "vol_1\n"],
  [["volume", "grow", "vol_1", "2"], volume, "PATCH /v1/volumes/vol_1", { size_gb: 2 }, "vol_1\n"],
  [["create", "--volume", "vol_1"], session, "POST /v1/sessions", { volume_id: "vol_1" }, `${S1}\n`],
])("%j sends what was asked for and prints what a script needs", async (argv, answer, request, body, out) => {
  const { url, seen } = await answering(answer);
  expect(await viv(url, argv)).toEqual({ code: 0, out, err: "" });
  expect(asked(seen)).toEqual([[request, body]]);
});

test.each([
  [["pause", S1], session],
  [["resume", S1], session],
  [["fork", S1], fork],
  [["restore", S1, "chk_1"], session],
  [["checkpoint", "create", S1], checkpoint],
  [["checkpoint", "start", "chk_1"], session],
  [["template", "save", S1, "tools"], template],
])("%j prints the stages' times beside its result, or inside its JSON", async (argv, answer) => {
  const timed = { ...answer, timing: { total: 9, load: 7, queue: 1 } };
  const { url, seen } = await answering(timed);
  const withTimings = await viv(url, [...argv, "--timing"]);
  expect(withTimings).toMatchObject({ code: 0, err: "viv: queue 1 ms, load 7 ms, total 9 ms\n" });
  const { out, err } = await viv(url, [...argv, "--timing", "--json"]);
  expect({ record: JSON.parse(out), err }).toEqual({ record: timed, err: "" });
  for (const { url: path } of seen) expect(path).toContain("?timing=true");
});

test("timings that the service does not send are missed aloud", async () => {
  const { url } = await answering(session);
  expect((await viv(url, ["pause", "--timing", S1])).err).toContain("no stage timings");
});

test("create says where a session starts and how long it lives; with --timing it waits for it", async () => {
  const { url, seen } = await serve(({ method }, response) =>
    respond(
      response,
      200,
      method === "POST" ? { ...session, state: "creating" } : { ...session, timing: { load: 3 } },
    ),
  );
  const limits = ["--idle-timeout", "10m", "--max-lifetime", "2h", "--paused-ttl", "7d"];
  const { out, err } = await viv(url, ["create", "--from-checkpoint", "chk_1", ...limits, "--timing"]);
  expect({ out, err }).toEqual({ out: `${S1}\n`, err: "viv: load 3 ms\n" });
  const body = {
    from_checkpoint: "chk_1",
    idle_timeout_ms: 600_000,
    max_lifetime_ms: 7_200_000,
    paused_ttl_ms: 604_800_000,
  };
  expect(asked(seen)).toEqual([
    ["POST /v1/sessions?timing=true", body],
    [`GET /v1/sessions/${S1}?timing=true`, ""],
  ]);
});

test("volume ls shows who has a volume; volume attach waits for the session that gets one", async () => {
  const attached = { ...volume, attached: true, session_id: S1, last_saved_at: at };
  const { url, seen } = await serve(({ url: path }, response) =>
    respond(response, 200, path === "/v1/volumes" ? { volumes: [attached, volume] } : session),
  );
  const lines = (await viv(url, ["volume", "ls"])).out.split("\n");
  expect(lines[1]).toMatch(/^vol_1 +2 GB +s1a{19} +\w+ +\w+$/);
  expect(lines[2]).toMatch(/^vol_1 +2 GB +never +\w+$/);
  expect(await viv(url, ["volume", "attach", "--name", "n", "vol_1"])).toEqual({
    ...{ code: 0, out: `${S1}\n`, err: "" },
  });
  expect(asked(seen).slice(1)).toEqual([
    ["POST /v1/sessions", { name: "n", volume_id: "vol_1" }],
    [`GET /v1/sessions/${S1}`, ""],
  ]);
});

test("checkpoint ls goes through all pages, of one session on request", async () => {
  const { url, seen } = await serve(({ url: path }, response) =>
    respond(
      response,
      200,
      path?.includes("cursor") ? { checkpoints: [] } : { checkpoints: [checkpoint], next_cursor: "c" },
    ),
  );
  const { out } = await viv(url, ["checkpoint", "ls", S1]);
  expect(out).toMatch(/^ID +SESSION +SIZE +AGE +NAME\nchk_1 +s1a{19} +2\.0 KiB +\w+ +before\n$/);
  expect(seen.map((each) => each.url)).toEqual([
    `/v1/checkpoints?session_id=${S1}&limit=200`,
    `/v1/checkpoints?session_id=${S1}&limit=200&cursor=c`,
  ]);
  expect(JSON.parse((await viv(url, ["checkpoint", "ls", "--json"])).out)).toEqual({
    checkpoints: [checkpoint],
  });
});

test("template ls shows versions and whether memory was saved", async () => {
  const base = { name: "base", kind: "official", status: "ready", versions: ["2026.07.10"], memory: true };
  const { url } = await answering({ templates: [base, template] });
  const lines = (await viv(url, ["template", "ls"])).out.split("\n");
  expect(lines[1]).toMatch(/^base +official +ready +2026\.07\.10 +yes$/);
  expect(lines[2]).toMatch(/^tools +user +ready +2 1 +yes +\w+$/);
});

test.each([
  ["checkpoint", "checkpoint_id", "/v1/checkpoints/gone"],
  ["template", "name", "/v1/templates/gone"],
  ["volume", "id", "/v1/volumes/gone"],
])("%s rm goes on after one that is gone", async (verb, key, path) => {
  const { url } = await serve((request, response) => {
    if (request.url === path) respond(response, 404, { error: "there is none", code: "not_found" });
    else response.writeHead(204).end();
  });
  expect(await viv(url, [verb, "rm", "gone", "x"])).toMatchObject({
    code: 1,
    out: "x\n",
    err: expect.stringContaining(`viv ${verb} ls`),
  });
  expect(JSON.parse((await viv(url, [verb, "rm", "--json", "gone", "x"])).out)).toEqual({
    results: [
      { [key]: "gone", ok: false, error: "there is none", code: "not_found" },
      { [key]: "x", ok: true },
    ],
  });
});

test("rm prints as JSON what it has removed, also when the key is refused before the end", async () => {
  const { url } = await serve((request, response) => {
    if (request.url === "/v1/checkpoints/a") response.writeHead(204).end();
    else respond(response, 401, { error: "key is revoked", code: "unauthenticated" });
  });
  const { code, out, err } = await viv(url, ["checkpoint", "rm", "--json", "a", "b", "c"]);
  expect([code, JSON.parse(out)]).toEqual([1, { results: [{ checkpoint_id: "a", ok: true }] }]);
  expect(err).toContain("key is revoked");
});

test("tree asks for sessions, checkpoints and, where a parent is missing, the history", async () => {
  const child = { ...session, session_id: "c1", parent_session_id: "s0", created_at: at };
  const { url, seen } = await serve(({ url: path }, response) => {
    if (path?.startsWith("/v1/checkpoints")) respond(response, 200, { checkpoints: [checkpoint] });
    else if (path?.includes("state=ended"))
      respond(response, 200, {
        sessions: [{ ...session, session_id: "s0", state: "ended", end_reason: "client_destroy" }],
      });
    else respond(response, 200, { sessions: [child, session] });
  });
  const { out } = await viv(url, ["tree"]);
  expect(out.split("\n")).toEqual([
    expect.stringMatching(/^ID +KIND +STATE +SIZE +AGE +NAME +DETAIL$/),
    expect.stringMatching(/^s0 +session +ended +small +\w+ +client_destroy$/),
    expect.stringMatching(/^└─ c1 +fork +live +small +\w+$/),
    expect.stringMatching(/^s1a{19} +session +live +small +\w+$/),
    expect.stringMatching(/^└─ chk_1 +checkpoint +2\.0 KiB +\w+ +before$/),
    "",
  ]);
  expect(seen.map((each) => each.url).sort()).toEqual([
    "/v1/checkpoints?limit=200",
    "/v1/sessions?limit=500",
    "/v1/sessions?state=ended&limit=500",
  ]);
  const one = JSON.parse((await viv(url, ["tree", "--json", "chk_1"])).out);
  expect(one).toEqual({
    roots: [
      {
        kind: "session",
        origin: "create",
        session,
        children: [{ kind: "checkpoint", checkpoint, children: [] }],
      },
    ],
  });
  expect(await viv(url, ["tree", "nobody"])).toMatchObject({
    code: 1,
    err: expect.stringContaining("all trees: viv tree"),
  });
});

test.each([
  [410, "session_ended", "viv checkpoint start"],
  [410, "session_node_lost", "viv rm"],
  [503, "archive_unavailable", "runs on"],
  [503, "size_unavailable", "./setup bakes small"],
  [503, "node_disk_pressure", "viv checkpoint rm"],
])("a refusal %d %s says what to do", async (status, code, hint) => {
  const { url } = await serve((_request, response) => respond(response, status, { error: "refused", code }));
  expect(await viv(url, ["resume", S1])).toMatchObject({ code: 1, err: expect.stringContaining(hint) });
});

test("get shows where a paused session's state is, and why its archive has failed", async () => {
  const archive = { status: "failed", detail: "the node does not answer" };
  const { url } = await answering({ ...session, state: "paused", snapshot_tier: "cold", archive });
  const { out } = await viv(url, ["get", S1], {}, { isInteractive: true });
  expect(out).toMatch(/^saved state +cold$/m);
  expect(out).toMatch(/^archive +failed: the node does not answer$/m);
});

test("archive retry prints the archive as JSON, and without an object store names the page that helps", async () => {
  const { url } = await answering({ status: "pending" });
  const { out } = await viv(url, ["archive", "retry", "--json", S1]);
  expect(JSON.parse(out)).toEqual({ status: "pending" });
  const without = await serve((_request, response) =>
    respond(response, 503, { error: "keeps no saved states", code: "archive_unavailable" }),
  );
  const { code, err } = await viv(without.url, ["archive", "retry", S1]);
  expect([code, err]).toEqual([1, expect.stringContaining("docs/operate/object-store.md")]);
  expect(err).not.toContain("runs on");
});

test("a human sees the whole record, with its state in colour unless declined", async () => {
  const { url } = await answering({ ...session, state: "paused", paused_at: at, wake_at: at });
  const terminal = { isInteractive: true };
  const { out } = await viv(url, ["pause", S1], { TERM: "xterm", NO_COLOR: "1" }, terminal);
  expect(out).toMatch(/^id +s1a{19}\nstate +paused\n/);
  expect(out).toMatch(/^wakes at +2027-01-01T10:00:00.000Z$/m);
  const coloured = await viv(url, ["pause", S1], { TERM: "xterm" }, terminal);
  expect(coloured.out).toContain("\u001b[36mpaused\u001b[39m");
});

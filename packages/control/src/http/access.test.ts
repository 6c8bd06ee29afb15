import { randomId } from "@vivarium/kit/id";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { answerReads } from "../../test-support/guest-reads.ts";

let control: Control;
let foreign: string;
let foreignSession: string;
/** The other organisation's ids, by the path parameter that names them. */
let theirs: Record<string, string>;
beforeAll(async () => {
  control = await startControl();
  control.node.onGuest = answerReads;
  foreign = await control.addKey();
  foreignSession = await control.createLive({ name: "theirs" }, foreign);
  theirs = await saveStateOf(foreignSession, foreign);
});
afterAll(() => control.close());

async function saveStateOf(id: string, key: string): Promise<Record<string, string>> {
  const kept = await control.ask(`POST /v1/sessions/${id}/checkpoints`, { key });
  const name = "saved";
  await control.ask(`POST /v1/sessions/${id}/templates`, { key, body: { name } });
  const made = await control.ask("POST /v1/api-keys", { key, body: { name } });
  const project = await control.ask("POST /v1/projects", { key, body: { name } });
  const volume = await control.ask("POST /v1/volumes", { key });
  const credential = { name, registry_host: "ghcr.io", username: "u", secret: "s" };
  expect((await control.ask(CREDENTIALS, { key, body: credential })).status).toBe(201);
  const artifact = await control.ask(`POST /v1/sessions/${id}/artifacts`, { key, body: { paths: ["a"] } });
  const [kid, pid, vid, aid] = [made.body.id, project.body.id, volume.body.id, artifact.body.id];
  return { id, cid: kept.body.checkpoint_id, aid, name, kid, pid, vid };
}

/** A call with the parameters of its path filled in, all the same or each its own. */
function fill(call: string, values: string | Record<string, string>): string {
  return call.replace(/:(id|cid|aid|name|kid|pid|vid|hash)\b/g, (_all, name: string) =>
    typeof values === "string" ? values : (values[name] ?? ""),
  );
}

const CREDENTIALS = "POST /v1/registry-credentials";
/** Succeeds also where there is nothing to delete. */
const ALSO_WHEN_ABSENT = "DELETE /v1/registry-credentials/:name";

const CONNECTION = {
  origin: "https://api.example.com",
  authentication: { type: "bearer", secret: "s" },
};

/** Every endpoint that wants a credential, with a body that it would accept. */
const ENDPOINTS: [call: string, body?: object][] = [
  ["GET /v1/org"],
  ["GET /v1/org/egress-cap"],
  ["PUT /v1/org/egress-cap", { cap_bytes: null }],
  ["GET /v1/whoami"],
  ["GET /v1/audit"],
  ["GET /v1/audit/verify"],
  ["GET /v1/audit/export"],
  ["GET /v1/api-keys"],
  ["POST /v1/api-keys", { name: "another" }],
  ["DELETE /v1/api-keys/:kid"],
  ["GET /v1/projects"],
  ["POST /v1/projects", { name: "another" }],
  ["GET /v1/projects/:pid"],
  ["PATCH /v1/projects/:pid", { name: "renamed" }],
  ["DELETE /v1/projects/:pid"],
  ["GET /v1/sessions"],
  ["POST /v1/sessions", {}],
  ["GET /v1/sessions/:id"],
  ["DELETE /v1/sessions/:id"],
  ["PATCH /v1/sessions/:id", { egress_cap_bytes: 1 }],
  ["GET /v1/sessions/:id/egress-cap"],
  ["GET /v1/sessions/:id/egress"],
  ["POST /v1/sessions/:id/egress", { mode: "deny" }],
  ["GET /v1/sessions/:id/egress-log"],
  ["GET /v1/sessions/:id/connections"],
  ["POST /v1/sessions/:id/connections", { name: "api", ...CONNECTION }],
  ["PUT /v1/sessions/:id/connections/:name", CONNECTION],
  ["DELETE /v1/sessions/:id/connections/:name"],
  ["GET /v1/sessions/:id/tokens"],
  ["POST /v1/sessions/:id/tokens", { ttl_seconds: 60 }],
  ["DELETE /v1/sessions/:id/tokens/:hash"],
  ["POST /v1/sessions/:id/expose", { port: 3000 }],
  ["POST /v1/sessions/:id/unexpose", { port: 3000 }],
  ["POST /v1/sessions/:id/exec", { command: ["true"] }],
  ["POST /v1/sessions/:id/exec?stream=true", { command: ["true"] }],
  ["POST /v1/sessions/exec", { language: "python", code: "" }],
  ["POST /v1/sessions/:id/pause"],
  ["POST /v1/sessions/:id/resume"],
  ["POST /v1/sessions/:id/fork"],
  ["POST /v1/sessions/:id/checkpoints"],
  ["GET /v1/sessions/:id/checkpoints"],
  ["POST /v1/sessions/:id/artifacts", { paths: ["a"] }],
  ["POST /v1/sessions/:id/archive/retry"],
  ["GET /v1/sessions/:id/artifacts"],
  ["GET /v1/sessions/:id/artifacts/:aid"],
  ["GET /v1/artifacts/:aid"],
  ["POST /v1/artifacts/:aid/extend", { ttl_days: 1 }],
  ["DELETE /v1/artifacts/:aid"],
  ["POST /v1/sessions/:id/restore", { checkpoint_id: "a" }],
  ["POST /v1/sessions/:id/templates", { name: "mine" }],
  ["GET /v1/checkpoints"],
  ["GET /v1/checkpoints/:cid"],
  ["POST /v1/checkpoints/:cid/sessions"],
  ["DELETE /v1/checkpoints/:cid"],
  ["GET /v1/templates"],
  ["POST /v1/templates", { name: "imported", from_image: "debian" }],
  ["GET /v1/templates/:name"],
  ["GET /v1/templates/:name/log"],
  ["DELETE /v1/templates/:name"],
  ["GET /v1/volumes"],
  ["POST /v1/volumes"],
  ["GET /v1/volumes/:vid"],
  ["PATCH /v1/volumes/:vid", { size_gb: 2 }],
  ["DELETE /v1/volumes/:vid"],
  ["GET /v1/registry-credentials"],
  [CREDENTIALS, { name: "another", registry_host: "ghcr.io", username: "u", secret: "s" }],
  [ALSO_WHEN_ABSENT],
  ["GET /v1/sessions/:id/files?path=a"],
  ["PUT /v1/sessions/:id/files", { path: "a", content: "" }],
  ["POST /v1/sessions/:id/files", { op: "list" }],
  ["DELETE /v1/sessions/:id/files?path=a"],
  ["PUT /v1/sessions/:id/files/batch", { files: [] }],
  ["POST /v1/sessions/:id/files/mkdir", { path: "a" }],
  ["POST /v1/sessions/:id/files/rename", { path: "a", dest_path: "b" }],
  ["GET /v1/sessions/:id/files/stream?path=a"],
  ["PUT /v1/sessions/:id/files/stream?path=a"],
  ["POST /v1/sessions/:id/processes", { name: "web", command: ["true"] }],
  ["GET /v1/sessions/:id/processes"],
  ["GET /v1/sessions/:id/processes/:name"],
  ["DELETE /v1/sessions/:id/processes/:name"],
  ["GET /v1/sessions/:id/processes/:name/logs"],
  ["POST /v1/sessions/batch/exec", { session_ids: ["a"], command: ["true"] }],
  ["GET /v1/no/such/path"],
];
/** They refuse every request that is not an upgrade; terminals/upgrade.test.ts sends real upgrades. */
const UPGRADES: typeof ENDPOINTS = [["GET /v1/sessions/:id/pty"], ["GET /v1/sessions/:id/tunnel"]];
/** Has no end: events/stream.test.ts reads it. */
const STREAMS: typeof ENDPOINTS = [["GET /v1/events"]];
/** For the operator alone: secrets/keks.test.ts. */
const OPERATORS: typeof ENDPOINTS = [["GET /v1/admin/keys/rotate"], ["POST /v1/admin/keys/rotate"]];
const BY_ID = ENDPOINTS.filter(([call]) => call.includes("/:"));

test("the suite knows every endpoint of the server", async () => {
  const { body } = await control.ask("GET /v1/openapi.json");
  const known = new Set(
    [...ENDPOINTS, ...UPGRADES, ...STREAMS, ...OPERATORS].map(([call]) =>
      call.split("?")[0]?.replace(/:(\w+)/g, "{$1}"),
    ),
  );
  const served = Object.entries<object>(body.paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
  );
  expect(served.filter((call) => !known.has(call)).toSorted()).toEqual([
    // Its signed link is the credential: artifacts/artifacts.test.ts.
    "GET /v1/artifacts/{aid}/files/{position}",
    "GET /v1/healthz",
  ]);
});

describe.each([...ENDPOINTS, ...UPGRADES, ...STREAMS, ...OPERATORS])("%s", (call, body) => {
  const concrete = fill(call, randomId());

  test.each([
    ["no key", null, {}],
    ["an unknown key", `viv_${"x".repeat(40)}`, {}],
    ["a malformed key", "secret", {}],
    ["another scheme", null, { authorization: "Basic dml2OnZpdg==" }],
    ["a key in a cookie and the query only", null, { cookie: "key=viv_x" }],
  ])("answers 401 to %s", async (_name, key, headers) => {
    const answer = await control.ask(concrete, { key, body, headers });
    expect(answer.status).toBe(401);
    expect(answer.body).toEqual({ error: expect.stringContaining("Authorization"), code: "unauthenticated" });
    expect(answer.headers["retry-after"]).toBeUndefined();
    expect(answer.headers["x-request-id"]).toMatch(/^req_[a-z0-9]{21}$/);
  });
});

test("a key is refused under its scheme in another case, and accepted as the specification writes it", async () => {
  const key = await control.addKey({ orgId: (await control.ask("GET /v1/org")).body.org_id });
  for (const [scheme, status] of [
    ["bearer", 401],
    ["BEARER", 401],
    ["Bearer", 200],
  ] as const) {
    const headers = { authorization: `${scheme} ${key}` };
    expect((await control.ask("GET /v1/sessions", { key: null, headers })).status).toBe(status);
  }
});

describe.each(BY_ID)("%s", (call, body) => {
  test("answers the same to a foreign, a nonexistent and a malformed id", async () => {
    const unknown = {
      id: randomId(),
      cid: `chk_${randomId()}`,
      name: "unknown@7",
      kid: `key_${randomId()}`,
      pid: `prj_${randomId()}`,
      vid: `vol_${randomId()}`,
    };
    const ids = [theirs, unknown, "nope", "UPPERCASEUPPERCASEUPP", "%00", "..%2f.."];
    const answers = await Promise.all(ids.map((id) => control.ask(fill(call, id), { body })));
    for (const { status, body: answer, headers } of answers) {
      expect(status).toBe(call === ALSO_WHEN_ABSENT ? 204 : 404);
      expect(answer).toEqual(answers[0]?.body);
      expect({ ...headers, "x-request-id": "", date: "" }).toEqual({
        ...answers[0]?.headers,
        "x-request-id": "",
        date: "",
      });
    }
    expect((await control.ask(`GET /v1/sessions/${foreignSession}`, { key: foreign })).body.state).toBe(
      "live",
    );
    expect(await stillThere(theirs, foreign)).toEqual([200, 200, 200, 200]);
  });
});

async function stillThere(
  { cid, name, kid, pid, vid }: Record<string, string>,
  key: string,
): Promise<number[]> {
  const { body } = await control.ask("GET /v1/api-keys", { key });
  expect(body.api_keys.map(({ id }: { id: string }) => id)).toContain(kid);
  const { credentials } = (await control.ask("GET /v1/registry-credentials", { key })).body;
  expect(credentials).toMatchObject([{ name }]);
  const paths = [`checkpoints/${cid}`, `templates/${name}`, `projects/${pid}`, `volumes/${vid}`];
  return await Promise.all(paths.map(async (path) => (await control.ask(`GET /v1/${path}`, { key })).status));
}

test("a revoked and an expired key soon answer as an unknown one", async () => {
  for (const column of ["revoked_at", "expires_at"]) {
    const key = await control.addKey();
    expect((await control.ask("GET /v1/org", { key })).status).toBe(200);
    await control.sql.query(
      `update api_keys set ${column} = now() - interval '1 second' where id = (select id from api_keys order by created_at desc limit 1)`,
    );
    await eventually(async () => {
      const answer = await control.ask("GET /v1/org", { key });
      expect([answer.status, answer.body.error]).toEqual([
        401,
        "Authorization: the API key is unknown, revoked or expired",
      ]);
    });
  }
});

test("lists show the caller's own sessions only", async () => {
  const mine = await control.create();
  const { body } = await control.ask("GET /v1/sessions");
  expect(body.sessions.map((session: { session_id: string }) => session.session_id)).toEqual([mine]);
  const theirs = await control.ask("GET /v1/sessions?external_id=x", { key: foreign });
  expect(theirs.body.sessions).toEqual([]);
});

test("a suspended organisation reads what it has, and every write is forbidden", async () => {
  const key = await control.addKey();
  const id = await control.createLive({}, key);
  const own = await saveStateOf(id, key);
  const { org_id: orgId } = (await control.ask("GET /v1/org", { key })).body;
  const suspend = (to: boolean) =>
    control.sql.query("update orgs set suspended = $1 where id = $2", [to, orgId]);
  await suspend(true);
  await eventually(async () => {
    expect((await control.ask("DELETE /v1/sessions/none", { key })).status).toBe(403);
  });
  for (const [call] of UPGRADES) expect((await control.ask(fill(call, own), { key })).status).toBe(403);
  for (const [call, body] of ENDPOINTS) {
    const { status, body: answer } = await control.ask(fill(call, own), { key, body });
    const expected = /^GET .*no\/such/.test(call) ? 404 : call.startsWith("GET ") ? 200 : 403;
    expect([call, status]).toEqual([call, expected]);
    if (status === 403)
      expect(answer).toEqual({
        error: expect.stringMatching(/^your organisation is suspended/),
        code: "forbidden",
      });
  }
  expect((await control.ask("GET /v1/org", { key })).body.suspended).toBe(true);
  expect((await control.ask(`GET /v1/sessions/${id}`, { key })).body.state).toBe("live");
  const early = [
    await control.ask("POST /v1/nothing", { key }),
    await control.ask("POST /v1/org", { key }),
    await control.ask("POST /v1/sessions", { key, raw: "{" }),
  ];
  expect(early.map(({ status }) => status)).toEqual([404, 405, 403]);
  await suspend(false);
  await eventually(async () => {
    expect((await control.ask(`DELETE /v1/sessions/${id}`, { key })).status).toBe(204);
  });
});

test("a key with the role read reads, and every write is forbidden, upgrades too", async () => {
  const full = await control.addKey();
  const id = await control.createLive({}, full);
  const own = await saveStateOf(id, full);
  const { body: made } = await control.ask("POST /v1/api-keys", {
    key: full,
    body: { name: "reader", role: "read" },
  });
  for (const [call, body] of [...ENDPOINTS, ...UPGRADES]) {
    const { status, body: answer } = await control.ask(fill(call, own), { key: made.key, body });
    const isClosed = UPGRADES.some(([one]) => one === call) || call.startsWith("GET /v1/audit");
    const expected = /^GET .*no\/such/.test(call) ? 404 : call.startsWith("GET ") && !isClosed ? 200 : 403;
    expect([call, status]).toEqual([call, expected]);
    if (status === 403 && call.startsWith("GET /v1/audit"))
      expect(answer).toEqual({ error: expect.stringContaining("role full"), code: "forbidden" });
    else if (status === 403)
      expect(answer).toEqual({ error: expect.stringContaining("role read"), code: "forbidden" });
  }
  expect((await control.ask("GET /v1/whoami", { key: made.key })).body.role).toBe("read");
  await control.ask(`DELETE /v1/sessions/${id}`, { key: full });
});

test("a key that is bound to a project sees and names that project only", async () => {
  const { rows } = await control.sql.query("select id, org_id from projects limit 1");
  const [{ id: projectId, org_id: orgId }] = rows;
  const otherId = `prj_${randomId()}`;
  await control.sql.query("insert into projects (id, org_id, name) values ($1, $2, 'other')", [
    otherId,
    orgId,
  ]);
  const key = await control.addKey({ orgId, scopedProjectId: otherId });
  const outside = await control.create();
  expect((await control.ask(`GET /v1/sessions/${outside}`, { key })).status).toBe(404);
  const refused = await control.ask("POST /v1/sessions", { key, body: { project_id: projectId } });
  expect([refused.status, refused.body.code]).toEqual([403, "forbidden"]);
  const inside = await control.ask("POST /v1/sessions", { key, body: { project_id: otherId } });
  expect(inside.body.project_id).toBe(otherId);
  expect((await control.ask("GET /v1/sessions", { key })).body.sessions).toHaveLength(1);
});

test("names of sessions are those of a project: a key that is bound to one cannot learn the names of others", async () => {
  const { rows } = await control.sql.query("select org_id from projects limit 1");
  const [{ org_id: orgId }] = rows;
  const projectId = `prj_${randomId()}`;
  await control.sql.query("insert into projects (id, org_id, name) values ($1, $2, 'named')", [
    projectId,
    orgId,
  ]);
  const key = await control.addKey({ orgId, scopedProjectId: projectId });
  const body = { name: "the same" };
  const outside = await control.create(body);
  const inside = await control.ask("POST /v1/sessions", { key, body });
  expect(inside.status).toBe(200);
  for (const again of [
    control.ask("POST /v1/sessions", { key, body }),
    control.ask("POST /v1/sessions", { body }),
  ])
    expect([(await again).status, (await again).body.error]).toEqual([
      409,
      'name: another session of the project is called "the same"; destroy it or choose another name',
    ]);
  for (const id of [outside, inside.body.session_id]) await control.ask(`DELETE /v1/sessions/${id}`);
});

test("a key that is bound to a project cannot learn how many sessions its organisation has", async () => {
  const { rows } = await control.sql.query("select org_id from projects limit 1");
  const [{ org_id: orgId }] = rows;
  const projectId = `prj_${randomId()}`;
  await control.sql.query("insert into projects (id, org_id, name) values ($1, $2, 'counted')", [
    projectId,
    orgId,
  ]);
  const key = await control.addKey({ orgId, scopedProjectId: projectId });
  await control.sql.query("update orgs set concurrent_sessions = 0 where id = $1", [orgId]);
  const answers = [await control.ask("POST /v1/sessions", { key }), await control.ask("POST /v1/sessions")];
  await control.sql.query("update orgs set concurrent_sessions = 10 where id = $1", [orgId]);
  expect(answers.map(({ status }) => status)).toEqual([429, 429]);
  expect(answers[0]?.body.error).toMatch(/ at once and has no room for it; pause/);
  expect(answers[1]?.body.error).toMatch(/ at once and has [0-9]+; pause/);
});

test("a foreign project is forbidden before anything else of the body is looked at", async () => {
  const { rows } = await control.sql.query("select id, org_id from projects order by created_at limit 1");
  const [{ id: foreign, org_id: orgId }] = rows;
  const projectId = `prj_${randomId()}`;
  await control.sql.query("insert into projects (id, org_id, name) values ($1, $2, 'bound')", [
    projectId,
    orgId,
  ]);
  const key = await control.addKey({ orgId, scopedProjectId: projectId });
  for (const path of ["sessions", "sessions/exec", `checkpoints/chk_${randomId()}/sessions`]) {
    const answer = await control.ask(`POST /v1/${path}`, { key, body: { project_id: foreign, size: 7 } });
    expect([path, answer.status, answer.body.code]).toEqual([path, 403, "forbidden"]);
  }
});

test("whoami answers with the key and its organisation", async () => {
  const { body } = await control.ask("GET /v1/whoami");
  expect(body).toEqual({
    kind: "api_key",
    org_id: expect.stringMatching(/^org_/),
    key_id: expect.stringMatching(/^key_/),
    role: "full",
  });
});

/** Scoped tokens: minting, the table of what each capability reaches, and what ends with a token. */
import { CAPABILITIES, TOKEN_ENDPOINTS } from "@vivarium/contract/api";
import { randomId } from "@vivarium/kit/id";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Answer, type Ask, type Control, eventually, startControl } from "../../test-support/control.ts";
import { silentLog } from "../../test-support/database.ts";
import { DatabaseLine } from "../../test-support/database-line.ts";
import { connect } from "../../test-support/terminal-client.ts";
import { createApp } from "../app.ts";

/** Seconds of a token that expires in a test: what it opens before is open by then. */
const SHORT_S = Math.ceil(3 * SLOWNESS);

/** They ask for no credential, or have one in their link. */
const PUBLIC = new Set(["GET /v1/healthz", "GET /v1/artifacts/:aid/files/:position"]);
let control: Control;
let session: string;
beforeAll(async () => {
  control = await startControl();
  await control.app.server.listen({ host: "127.0.0.1", port: 0 });
  session = await control.createLive({ name: "of tokens" });
});
afterAll(() => control.close());

const mint = (body: object = {}, id = session, ask: Ask = {}): Promise<Answer> =>
  control.ask(`POST /v1/sessions/${id}/tokens`, { body: { ttl_seconds: 3_600, ...body }, ...ask });
const tokenFor = async (body: object = {}, id = session) =>
  (await mint(body, id)).body as { token: string; hash: string };
const list = async (id = session) =>
  (await control.ask(`GET /v1/sessions/${id}/tokens`)).body as { hash: string }[];
const revoke = (hash: string, id = session) => control.ask(`DELETE /v1/sessions/${id}/tokens/${hash}`);
/** Its time is over at once, as the database has it. */
const expiredToken = async (id = session) => {
  const made = await tokenFor({}, id);
  await control.sql.query(
    "update session_tokens set expires_at = now() - interval '1 second' where digest = decode($1, 'hex')",
    [made.hash],
  );
  return made;
};
const statusOf = async (call: string, key: string, body?: object) =>
  (await control.ask(call, { key, ...(body && { body }) })).status;

test("a token is shown once; the list has its hash, rights and times, newest first", async () => {
  const answer = await mint({ ttl_seconds: 600, capabilities: [] });
  expect([answer.status, answer.headers["cache-control"]]).toEqual([201, "no-store"]);
  const { token, ...record } = answer.body;
  expect(token).toMatch(/^viv_st_[A-Za-z0-9]{40}$/);
  expect(record).toEqual({
    hash: expect.stringMatching(/^[0-9a-f]{64}$/),
    capabilities: [...CAPABILITIES],
    created_at: expect.stringMatching(/Z$/),
    expires_at: expect.stringMatching(/Z$/),
  });
  const later = await tokenFor({ capabilities: ["view", "pty"] });
  const listed = await list();
  expect(listed.slice(0, 2).map(({ hash }) => hash)).toEqual([later.hash, record.hash]);
  expect(listed[0]).toMatchObject({ capabilities: ["pty", "view"] });
  expect(JSON.stringify(listed)).not.toContain(token.slice(6));
  expect(await statusOf(`GET /v1/sessions/${session}`, token)).toBe(200);
  await eventually(async () => expect((await list())[1]).toHaveProperty("last_used_at"));
});

test.each([
  [{ ttl_seconds: 0 }, "ttl_seconds"],
  [{ ttl_seconds: 1.5 }, "ttl_seconds"],
  [{ ttl_seconds: 2_592_001 }, "ttl_seconds"],
  [{ ttl_seconds: null }, "ttl_seconds"],
  [{ capabilities: ["root"] }, "capabilities"],
  [{ ttl_seconds: undefined }, "ttl_seconds"],
  [{ capabilities: ["exec", "exec"] }, "capabilities"],
  [{ capabilities: null }, "capabilities"],
  [{ capabilites: ["view"] }, "capabilites"],
  [{ extra: 1 }, "extra"],
])("%j is refused with the field's name, and makes no token", async (body, field) => {
  const before = await list();
  const answer = await mint(body);
  expect([answer.status, answer.body.code]).toEqual([400, "validation"]);
  expect(answer.body.error).toMatch(new RegExp(`^${field}`));
  expect(await list()).toEqual(before);
});

test("a token does not outlive its session, and ends with it", async () => {
  const short = await control.createLive({ max_lifetime_ms: 7_200_000 });
  expect((await mint({ ttl_seconds: 7_201 }, short)).body.error).toMatch(/^ttl_seconds: must be at most \d+/);
  const { token } = await tokenFor({ ttl_seconds: 3_600 }, short);
  expect(await statusOf(`GET /v1/sessions/${short}`, token)).toBe(200);
  await control.ask(`DELETE /v1/sessions/${short}`);
  await eventually(async () => expect(await statusOf(`GET /v1/sessions/${short}`, token)).toBe(401));
});

test("a token does not outlive the key that mints it", async () => {
  const expires_at = new Date(Date.now() + 86_400_000).toISOString();
  const { key } = (await control.ask("POST /v1/api-keys", { body: { name: "a day", expires_at } })).body;
  const refused = await mint({ ttl_seconds: 86_401 }, session, { key });
  expect([refused.status, refused.body.code]).toEqual([403, "forbidden"]);
  expect(refused.body.error).toMatch(/^ttl_seconds: this API key expires at /);
  expect((await mint({ ttl_seconds: 3_600 }, session, { key })).status).toBe(201);
});

test("the list has no token that was revoked or has expired", async () => {
  const own = await control.createLive();
  const [kept, revoked] = [await tokenFor({}, own), await tokenFor({}, own)];
  const expired = await expiredToken(own);
  expect(await list(own)).toHaveLength(2);
  await revoke(revoked.hash, own);
  expect((await list(own)).map(({ hash }) => hash)).toEqual([kept.hash]);
  expect(await statusOf(`GET /v1/sessions/${own}`, expired.token)).toBe(401);
});

test("a session has 64 tokens at most, of which those that ended do not count", async () => {
  const own = await control.createLive();
  const { hash } = await tokenFor({}, own);
  for (let count = 1; count < 64; count++) expect((await mint({}, own)).status).toBe(201);
  expect((await mint({}, own)).body.code).toBe("conflict");
  await revoke(hash, own);
  expect((await mint({}, own)).status).toBe(201);
});

test("an unknown hash, one of another session, one that ended and a malformed one are the same 404", async () => {
  const other = await control.createLive();
  const revoked = await tokenFor();
  expect((await revoke(revoked.hash)).status).toBe(204);
  const expired = await expiredToken();
  const theirs = await tokenFor({}, other);
  const hashes = [revoked.hash, expired.hash, theirs.hash, "0".repeat(64), "nonsense"];
  const answers = await Promise.all(hashes.map((hash) => revoke(hash)));
  expect(answers.map(({ status, text }) => [status, text])).toEqual(Array(5).fill([404, answers[0]?.text]));
  expect(await statusOf(`GET /v1/sessions/${other}`, theirs.token)).toBe(200);
});

test("only a key of the whole organisation manages tokens, and minting wakes nothing", async () => {
  const { token, hash } = await tokenFor();
  const project = (await control.ask("POST /v1/projects", { body: { name: "p" } })).body.id;
  const inProject = (await control.ask("POST /v1/sessions", { body: { project_id: project } })).body
    .session_id;
  await control.until(inProject, "live");
  const { key } = (await control.ask("POST /v1/api-keys", { body: { name: "k", project_id: project } })).body;
  for (const [credential, id] of [
    [token, session],
    [key, inProject],
  ] as const) {
    expect(await statusOf(`GET /v1/sessions/${id}/tokens`, credential)).toBe(403);
    expect(await statusOf(`POST /v1/sessions/${id}/tokens`, credential, { ttl_seconds: 1 })).toBe(403);
    expect(await statusOf(`DELETE /v1/sessions/${id}/tokens/${hash}`, credential)).toBe(403);
  }
  await control.ask(`POST /v1/sessions/${inProject}/pause`);
  const minted = await tokenFor({}, inProject);
  expect((await control.ask(`GET /v1/sessions/${inProject}`, { key: minted.token })).body.state).toBe(
    "paused",
  );
});

/** The table of the interface, written out: what `TOKEN_ENDPOINTS` says must not be judged by itself. */
const REACHED: Record<string, string> = {
  "GET /v1/whoami": "pty exec files tunnel view",
  "GET /v1/sessions/:id": "view",
  "GET /v1/sessions/:id/checkpoints": "view",
  "GET /v1/sessions/:id/egress": "view",
  "POST /v1/sessions/:id/exec": "exec",
  "POST /v1/sessions/batch/exec": "exec",
  "POST /v1/sessions/:id/processes": "exec",
  "GET /v1/sessions/:id/processes": "exec view",
  "GET /v1/sessions/:id/processes/:name": "exec view",
  "DELETE /v1/sessions/:id/processes/:name": "exec",
  "GET /v1/sessions/:id/processes/:name/logs": "exec view",
  "GET /v1/sessions/:id/files": "files",
  "PUT /v1/sessions/:id/files": "files",
  "POST /v1/sessions/:id/files": "files",
  "DELETE /v1/sessions/:id/files": "files",
  "PUT /v1/sessions/:id/files/batch": "files",
  "POST /v1/sessions/:id/files/mkdir": "files",
  "POST /v1/sessions/:id/files/rename": "files",
  "GET /v1/sessions/:id/files/stream": "files",
  "PUT /v1/sessions/:id/files/stream": "files",
  "GET /v1/sessions/:id/pty": "pty",
  "GET /v1/sessions/:id/tunnel": "tunnel",
};

describe("each endpoint and each capability", () => {
  let endpoints: string[];
  let other: string;
  beforeAll(async () => {
    const { body } = await control.ask("GET /v1/openapi.json");
    endpoints = Object.entries<object>(body.paths)
      .flatMap(([path, methods]) =>
        Object.keys(methods).map((method) => `${method.toUpperCase()} ${path.replace(/\{(\w+)\}/g, ":$1")}`),
      )
      .filter((call) => !PUBLIC.has(call));
    other = await control.createLive();
  });
  const fill = (call: string, id: string) => call.replace(":id", id).replace(/:\w+/g, "unknown");

  test("the table names no endpoint that the service does not have", () => {
    expect(Object.keys(TOKEN_ENDPOINTS).filter((call) => !endpoints.includes(call))).toEqual([]);
    expect(Object.keys(REACHED).filter((call) => !endpoints.includes(call))).toEqual([]);
  });

  test.each(CAPABILITIES)("%s reaches what the table says, and nothing else", async (capability) => {
    const { token } = await tokenFor({ capabilities: [capability] });
    const reached: string[] = [];
    for (const call of endpoints) {
      // Without a body: what is allowed is refused for another reason at most.
      const { status, body } = await control.ask(fill(call, session), { key: token });
      if (status === 403) expect([call, body.code]).toEqual([call, "forbidden"]);
      else reached.push(call);
    }
    const allowed = endpoints.filter((call) => REACHED[call]?.split(" ").includes(capability));
    expect(reached.toSorted()).toEqual(allowed.toSorted());
    expect(reached.length).toBeGreaterThan(1);
  });

  test("another session looks as if there were none, for every endpoint of a session", async () => {
    const { token } = await tokenFor();
    for (const call of endpoints.filter((one) => one.includes("/sessions/:id"))) {
      const [theirs, none] = await Promise.all(
        [other, randomId()].map((id) => control.ask(fill(call, id), { key: token })),
      );
      expect([call, theirs?.status, theirs?.text]).toEqual([call, 404, none?.text]);
    }
  });
});

test("a batch runs in the token's session, and is refused when it names another one", async () => {
  const other = await control.createLive();
  const { token } = await tokenFor({ capabilities: ["exec"] });
  const batch = (ids: string[]) =>
    control.ask("POST /v1/sessions/batch/exec", {
      key: token,
      body: { session_ids: ids, command: ["true"] },
    });
  expect((await batch([session])).body.results).toMatchObject([{ session_id: session, exit_code: 0 }]);
  for (const ids of [[other], [session, other], [randomId()]]) expect((await batch(ids)).status).toBe(403);
});

test("whoami and the audit log name the token by its hash", async () => {
  const { token, hash } = await tokenFor({ capabilities: ["exec"] });
  expect((await control.ask("GET /v1/whoami", { key: token })).body).toMatchObject({
    kind: "scoped_token",
    session_id: session,
    capabilities: ["exec"],
  });
  await control.ask(`POST /v1/sessions/${session}/exec`, { key: token, body: { command: ["by-token"] } });
  await eventually(async () => {
    const { entries } = (await control.ask(`GET /v1/audit?session_id=${session}`)).body;
    expect(entries[0]).toMatchObject({
      actor: { kind: "scoped_token", id: hash },
      meta: { executable: "by-token" },
    });
  });
});

/** A terminal and a tunnel of a new token. One that expires before both are open, on a busy host, is followed by one for longer. */
async function openedFor(ttl_seconds: number, at: Control = control) {
  for (let seconds = ttl_seconds; ; seconds *= 2) {
    const made = await tokenFor({ ttl_seconds: seconds });
    const attempts = ["pty", "tunnel?port=22"].map((path) => {
      const client = connect(at, `/v1/sessions/${session}/${path}`, { key: made.token });
      // A connection that is cut before it is open is never refused.
      const cut = client.closed.then(() => Promise.reject(new Error("it was cut")));
      return Promise.race([client.opened(), cut]);
    });
    const opened = await Promise.allSettled(attempts);
    const open = opened.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
    if (open.length === opened.length) return { ...made, open };
    for (const { webSocket } of open) webSocket.terminate();
    if (seconds >= 60) throw new Error(`a token of ${seconds} s opened ${open.length} of ${opened.length}`);
  }
}

describe.each([
  ["is revoked", 3_600, (hash: string) => revoke(hash)],
  [
    "is revoked through another process",
    3_600,
    (hash: string) =>
      control.sql.query("update session_tokens set revoked_at = now() where digest = decode($1, 'hex')", [
        hash,
      ]),
  ],
  ["expires", SHORT_S, async () => undefined],
])("when a token %s", (_how, ttl_seconds, end) => {
  test("its terminal and tunnel are closed, and it is refused", async () => {
    const { token, hash, open } = await openedFor(ttl_seconds);
    await end(hash);
    expect(await Promise.all(open.map(({ closed }) => closed))).toEqual([1008, 1008]);
    await eventually(async () => expect(await statusOf(`GET /v1/sessions/${session}`, token)).toBe(401));
  });
});

test("when a token expires while the database is away, its terminal and tunnel are closed", async () => {
  const line = new DatabaseLine(control.settings.databaseUrl);
  await line.restore();
  const app = await createApp({ ...control.settings, databaseUrl: line.url }, silentLog);
  try {
    app.startSweeps();
    await app.server.listen({ host: "127.0.0.1", port: 0 });
    const at: Control = Object.assign(Object.create(control), { app });
    const { open } = await openedFor(SHORT_S, at);
    await line.sever();
    expect(await Promise.all(open.map(({ closed }) => closed))).toEqual([1008, 1008]);
  } finally {
    await app.close();
    await line.close();
  }
});

/** Entries of changes and denials: each has exactly one, and none has a secret. */
import { AUDIT_ACTIONS, auditActionOf, END_REASONS, OF_THE_OPERATOR } from "@vivarium/contract/api";
import type { GuestRequest } from "@vivarium/contract/test-support/node";
import { randomId } from "@vivarium/kit/id";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type Ask, type Control, eventually, startControl } from "../../test-support/control.ts";
import { connect, openPty } from "../../test-support/terminal-client.ts";
import { loadPepper } from "../access/pepper.ts";
import { auditKeyOf, isSealed } from "./entry.ts";

let control: Control;
/** The key of requests whose entries mark a moment, so that they use up no other key's denials. */
let marker: string;
beforeAll(async () => {
  control = await startControl({ hasArchives: true });
  marker = await control.addKey({ orgId: (await control.ask("GET /v1/org")).body.org_id });
  control.node.onGuest = answerGuest;
  // An archive that is complete could not be retried.
  control.node.onPack = () => {
    throw new Error("nothing is packed");
  };
  await control.app.server.listen({ host: "127.0.0.1", port: 0 });
});
afterEach(() => control.destroyAll());
afterAll(() => control.close());

async function answerGuest(guest: GuestRequest): Promise<void> {
  const sent = await guest.body();
  const wrote = { bytes: sent.length, sha256: "0".repeat(64), duration_us: 1 };
  const web = { name: "web", argv: ["x"], keep_alive: false, pid: 1, state: "exited", started_at_ms: 0 };
  if (guest.call === "PUT files/write") guest.json(wrote);
  else if (guest.call === "GET files/read") guest.bytes(Buffer.alloc(0));
  else if (guest.call === "GET files/match") guest.json({ files: [], truncated: false, duration_us: 1 });
  else guest.json(guest.call === "GET processes" ? { processes: [web] } : { ...web, entries: [] });
}

interface Entry {
  id: string;
  action: string;
  actor: { kind: string; id: string };
  target: string;
  outcome: string;
  code?: string;
  request_id: string;
  ip: string;
  meta: Record<string, unknown>;
}
const entriesOf = async (query: string): Promise<Entry[]> =>
  (await control.ask(`GET /v1/audit?${query}&limit=200`)).body.entries;
/** Makes a request. Returns its answer, and its id, by which its entries are found. */
async function asked(call: string, ask: Ask = {}) {
  const id = `r-${randomId()}`;
  return { id, answer: await control.ask(call, { ...ask, headers: { ...ask.headers, "x-request-id": id } }) };
}
/** Entries of one request, by its id. Only after `allWritten`. */
const ofRequest = async (id: string): Promise<Entry[]> =>
  (await entriesOf("")).filter(({ request_id }) => request_id === id);
/**
 * Resolves when the entries of all requests so far are written: the entry of a later one is behind them. What the ends of
 * commands add to entries is behind that one, and before the entry of a second one.
 */
async function allWritten(): Promise<void> {
  for (let round = 0; round < 2; round++) {
    const { id } = await asked("DELETE /v1/projects/none", { key: marker });
    await eventually(async () => expect(await ofRequest(id)).toHaveLength(1));
  }
}
/** Makes a request, and returns the entries that it left. */
async function audited(call: string, ask: Ask = {}) {
  const { id, answer } = await asked(call, ask);
  await allWritten();
  return { answer, entries: await ofRequest(id) };
}

/** Every operation that changes something, with what it needs. `:id` is a live session, `:paused` a paused one. */
const CHANGES: [operation: keyof typeof AUDIT_ACTIONS, call: string, body?: object][] = [
  ["createSession", "POST /v1/sessions", {}],
  ["run", "POST /v1/sessions/exec", { language: "python", code: "1" }],
  ["updateSession", "PATCH /v1/sessions/:id", { egress_cap_bytes: 7 }],
  ["setOrgEgressCap", "PUT /v1/org/egress-cap", { cap_bytes: null }],
  ["setEgress", "POST /v1/sessions/:id/egress", { mode: "deny" }],
  ["exposePort", "POST /v1/sessions/:id/expose", { port: 3000 }],
  ["unexposePort", "POST /v1/sessions/:id/unexpose", { port: 3000 }],
  ["createCheckpoint", "POST /v1/sessions/:id/checkpoints", {}],
  ["restoreSession", "POST /v1/sessions/:id/restore", { checkpoint_id: ":cid" }],
  ["startCheckpoint", "POST /v1/checkpoints/:cid/sessions"],
  ["deleteCheckpoint", "DELETE /v1/checkpoints/:cid"],
  ["captureArtifacts", "POST /v1/sessions/:id/artifacts", { paths: ["a"] }],
  ["extendArtifact", "POST /v1/artifacts/:aid/extend", { ttl_days: 8 }],
  ["deleteArtifact", "DELETE /v1/artifacts/:aid"],
  ["saveTemplate", "POST /v1/sessions/:id/templates", { name: "mine" }],
  ["importTemplate", "POST /v1/templates", { name: "imported", from_image: "debian" }],
  ["deleteTemplate", "DELETE /v1/templates/mine"],
  ["createVolume", "POST /v1/volumes"],
  ["growVolume", "PATCH /v1/volumes/:vid", { size_gb: 2 }],
  ["deleteVolume", "DELETE /v1/volumes/:vid"],
  [
    "createRegistryCredential",
    "POST /v1/registry-credentials",
    { name: "hub", registry_host: "docker.io", username: "u", secret: "hunter6" },
  ],
  ["deleteRegistryCredential", "DELETE /v1/registry-credentials/hub"],
  ["forkSession", "POST /v1/sessions/:id/fork", { count: 2 }],
  ["createProject", "POST /v1/projects", { name: "web" }],
  ["updateProject", "PATCH /v1/projects/:pid", { name: "site" }],
  ["deleteProject", "DELETE /v1/projects/:pid"],
  ["createApiKey", "POST /v1/api-keys", { name: "ci" }],
  ["revokeApiKey", "DELETE /v1/api-keys/:kid"],
  [
    "createConnection",
    "POST /v1/sessions/:bound/connections",
    {
      name: "second",
      origin: "https://two.example.com",
      authentication: { type: "bearer", secret: "hunter3" },
    },
  ],
  [
    "replaceConnection",
    "PUT /v1/sessions/:bound/connections/second",
    { origin: "https://two.example.com", authentication: { type: "bearer", secret: "hunter4" } },
  ],
  ["revokeConnection", "DELETE /v1/sessions/:bound/connections/second"],
  ["mintToken", "POST /v1/sessions/:id/tokens", { ttl_seconds: 60 }],
  ["revokeToken", "DELETE /v1/sessions/:id/tokens/:hash"],
  ["exec", "POST /v1/sessions/:id/exec", { command: ["true"] }],
  ["execBatch", "POST /v1/sessions/batch/exec", { session_ids: [":id"], command: ["true"] }],
  ["startProcess", "POST /v1/sessions/:id/processes", { name: "web", command: ["x"] }],
  ["endProcess", "DELETE /v1/sessions/:id/processes/web"],
  ["writeFile", "PUT /v1/sessions/:id/files", { path: "a", content: "hunter2" }],
  ["callFiles", "POST /v1/sessions/:id/files", { op: "write", path: "a", content: "hunter2" }],
  ["writeFiles", "PUT /v1/sessions/:id/files/batch", { files: [{ path: "a", content: "hunter2" }] }],
  ["makeDirectory", "POST /v1/sessions/:id/files/mkdir", { path: "a" }],
  ["renameFile", "POST /v1/sessions/:id/files/rename", { path: "a", dest_path: "b" }],
  ["deleteFile", "DELETE /v1/sessions/:id/files?path=b"],
  ["uploadFile", "PUT /v1/sessions/:id/files/stream?path=a"],
  ["pauseSession", "POST /v1/sessions/:id/pause"],
  ["retryArchive", "POST /v1/sessions/:id/archive/retry"],
  ["resumeSession", "POST /v1/sessions/:id/resume"],
  ["deleteSession", "DELETE /v1/sessions/:id"],
];
/** WebSockets, which have tests of their own below. */
const UPGRADES = ["openTerminal", "openTunnel"];
/** A run leaves an entry for its session, and one for its command. */
const OF_A_RUN = ["session.create", "session.exec"];

test("the table has every operation of the interface that is no read, and no other", async () => {
  const { body } = await control.ask("GET /v1/openapi.json");
  const changing = Object.values<Record<string, { operationId: string }>>(body.paths).flatMap((methods) =>
    Object.entries(methods)
      .filter(([method]) => method !== "get")
      .map(([, { operationId }]) => operationId)
      .filter((id) => !OF_THE_OPERATOR.includes(id)),
  );
  expect(Object.keys(AUDIT_ACTIONS).toSorted()).toEqual([...changing, ...UPGRADES].toSorted());
  expect(CHANGES.map(([operation]) => operation).toSorted()).toEqual(changing.toSorted());
});

test("each change of the interface leaves exactly one entry of its caller, and no secret", async () => {
  const { key_id: keyId } = (await control.ask("GET /v1/whoami")).body;
  const connection = {
    name: "first",
    origin: "https://one.example.com",
    authentication: { type: "bearer", secret: "hunter5" },
  };
  const ids: Record<string, string> = {
    id: await control.createLive(),
    bound: await control.createLive({ connections: [connection] }),
  };
  const secrets = ["hunter2", "hunter3", "hunter4", "hunter5", "hunter6", control.key];
  const fill = (text: string) =>
    text.replace(/:(id|bound|cid|aid|pid|kid|vid|hash)\b/g, (_all, name) => ids[name] ?? "");
  const requests: [operation: keyof typeof AUDIT_ACTIONS, requestId: string][] = [];
  for (const [operation, call, body] of CHANGES) {
    const filled = body && JSON.parse(fill(JSON.stringify(body)));
    const { id: requestId, answer } = await asked(fill(call), { body: filled });
    expect([operation, answer.status < 300, answer.text]).toEqual([operation, true, answer.text]);
    requests.push([operation, requestId]);
    const { checkpoint_id: cid, id, key, token, hash, ingress_token: ingress } = answer.body ?? {};
    if (cid && operation === "createCheckpoint") ids.cid = cid;
    if (operation === "captureArtifacts") ids.aid = id;
    if (operation === "createProject") ids.pid = id;
    if (operation === "createApiKey") ids.kid = id;
    if (operation === "createVolume") ids.vid = id;
    if (hash) ids.hash = hash;
    secrets.push(...[key, token, ingress].filter(Boolean));
  }
  await allWritten();
  for (const [operation, requestId] of requests) {
    const entries = await ofRequest(requestId);
    expect([operation, entries.map((entry) => entry.action).toSorted()]).toEqual([
      operation,
      operation === "run" ? OF_A_RUN : [auditActionOf(operation)],
    ]);
    for (const entry of entries)
      expect(entry).toMatchObject({
        actor: { kind: "api_key", id: keyId },
        outcome: "ok",
        ip: "127.0.0.1",
      });
  }
  expect(secrets.length).toBeGreaterThan(4);
  const { rows } = await control.sql.query("select * from audit_log");
  const log = JSON.stringify(rows);
  for (const secret of secrets) expect(log.includes(secret)).toBe(false);
});

test("reads, and changes that change nothing, leave no entry", async () => {
  const id = await control.createLive();
  const repeated = { headers: { "idempotency-key": "again" }, body: {} };
  const first = await asked("POST /v1/sessions", repeated);
  const ineffective: [call: string, ask?: Ask][] = [
    ["GET /v1/sessions"],
    [`GET /v1/sessions/${id}`],
    [`GET /v1/sessions/${id}/files?path=a`],
    [`POST /v1/sessions/${id}/files`, { body: { op: "list", path: "a" } }],
    [`POST /v1/sessions/${id}/resume`],
    [`POST /v1/sessions/${id}/unexpose`, { body: { port: 9 } }],
    ["POST /v1/sessions", repeated],
    ["DELETE /v1/registry-credentials/none"],
  ];
  const requests: [call: string, requestId: string][] = [];
  for (const [call, ask] of ineffective) requests.push([call, (await asked(call, ask)).id]);
  await allWritten();
  expect(await ofRequest(first.id)).toHaveLength(1);
  for (const [call, requestId] of requests) expect([call, await ofRequest(requestId)]).toEqual([call, []]);
});

test("an entry says what was changed: the moves of a session are all its own", async () => {
  const id = await control.createLive();
  const wakeAt = new Date(Date.now() + 3_600_000).toISOString();
  await control.ask(`POST /v1/sessions/${id}/pause`, { body: { wake_at: wakeAt } });
  await control.ask(`POST /v1/sessions/${id}/pause`, { body: {} });
  await control.ask(`POST /v1/sessions/${id}/resume`);
  await control.ask(`DELETE /v1/sessions/${id}?reason=${END_REASONS[1]}`);
  const entries = (await entriesOf(`session_id=${id}`)).toReversed();
  expect(entries.map(({ action, actor, target, meta }) => [action, actor.kind, target, meta])).toEqual([
    ["session.create", "api_key", id, { template: "base" }],
    ["session.ready", "system", id, { event: "provisioned" }],
    ["session.pause", "api_key", id, { event: "pause", wake_at: wakeAt }],
    ["session.pause", "api_key", id, { wake_at: null }],
    ["session.resume", "api_key", id, { event: "resume" }],
    ["session.destroy", "api_key", id, { event: "destroy", end_reason: END_REASONS[1] }],
  ]);
});

describe("moves that the service makes by itself", () => {
  test("have the service as their actor", async () => {
    const id = await control.createLive({ idle_timeout_ms: 60_000 });
    await control.sql.query(
      "update sessions set last_active_at = last_active_at - interval '1 hour', due_at = now() where id = $1",
      [id],
    );
    await control.until(id, "paused");
    expect((await entriesOf(`session_id=${id}&actor=system`))[0]).toMatchObject({
      action: "session.pause",
      actor: { kind: "system", id: "system" },
      request_id: "",
      ip: "",
      meta: { event: "idle_timeout" },
    });
  });

  test("a machine that is lost, and a wake by a command", async () => {
    const id = await control.createLive();
    await control.ask(`POST /v1/sessions/${id}/pause`);
    await control.exec(id);
    expect((await entriesOf(`session_id=${id}&action=session.resume`))[0]).toMatchObject({
      actor: { kind: "system" },
      meta: { event: "operation_wake" },
    });
    control.node.machines.clear();
    await control.until(id, "failed");
    expect((await entriesOf(`session_id=${id}&action=session.fail`))[0]).toMatchObject({
      actor: { kind: "system" },
      meta: { event: "machine_lost" },
    });
  });
});

test("simultaneous pauses are one change with one entry", async () => {
  const id = await control.createLive();
  await Promise.all([1, 2, 3].map(() => control.ask(`POST /v1/sessions/${id}/pause`)));
  expect(await entriesOf(`session_id=${id}&action=session.pause`)).toHaveLength(1);
});

test("a change that fails leaves none: the entry is in the transaction of the change", async () => {
  const id = await control.createLive();
  await control.sql.query(
    "alter table audit_log add constraint shut check (action <> 'egress.set') not valid",
  );
  const answer = await control.ask(`POST /v1/sessions/${id}/egress`, { body: { mode: "deny" } });
  await control.sql.query("alter table audit_log drop constraint shut");
  expect(answer.status).toBe(500);
  expect((await control.ask(`GET /v1/sessions/${id}/egress`)).body.mode).toBe("allow");
  expect((await control.ask(`POST /v1/sessions/${id}/egress`, { body: { mode: "deny" } })).status).toBe(200);
});

test("the keys of a project that is deleted are revoked with an entry each", async () => {
  const { id } = (await control.ask("POST /v1/projects", { body: { name: "short" } })).body;
  const made = await control.ask("POST /v1/api-keys", { body: { name: "k", project_id: id } });
  await control.ask(`DELETE /v1/projects/${id}`);
  expect(await entriesOf(`target=${made.body.id}&action=key.revoke`)).toMatchObject([
    { actor: { kind: "system" } },
  ]);
});

test("a terminal and a tunnel leave an entry when they are opened", async () => {
  const id = await control.createLive();
  (await openPty(control, id)).webSocket.terminate();
  (await connect(control, `/v1/sessions/${id}/tunnel`).opened()).webSocket.terminate();
  await eventually(async () => {
    const actions = (await entriesOf(`session_id=${id}`)).map(({ action }) => action);
    expect(actions.filter((action) => action.endsWith(".open")).toSorted()).toEqual([
      "terminal.open",
      "tunnel.open",
    ]);
  });
});

describe("denials", () => {
  test("each has exactly one entry, with its code", async () => {
    const id = await control.createLive();
    const { key: reader } = (
      await control.ask("POST /v1/api-keys", { body: { name: "reader", role: "read" } })
    ).body;
    const { token } = (
      await control.ask(`POST /v1/sessions/${id}/tokens`, {
        body: { ttl_seconds: 60, capabilities: ["view"] },
      })
    ).body;
    const foreign = await control.createLive({}, await control.addKey());
    const cases: [string, Ask, Partial<Entry>][] = [
      [
        `DELETE /v1/sessions/${id}`,
        { key: reader },
        { action: "session.destroy", target: id, code: "forbidden" },
      ],
      [
        `DELETE /v1/sessions/${foreign}`,
        {},
        { action: "session.destroy", target: foreign, code: "not_found" },
      ],
      [`GET /v1/sessions/${foreign}`, {}, { action: "api.call", target: foreign, code: "not_found" }],
      [
        `POST /v1/sessions/${id}/exec`,
        { key: token, body: { command: ["true"] } },
        { action: "session.exec", target: id, code: "forbidden" },
      ],
      ["GET /v1/audit", { key: reader }, { action: "api.call", code: "forbidden" }],
    ];
    const requestIds: string[] = [];
    for (const [call, ask, expected] of cases) {
      const { id: requestId, answer } = await asked(call, ask);
      expect([call, answer.body.code]).toEqual([call, expected.code]);
      requestIds.push(requestId);
    }
    await allWritten();
    for (const [at, [call, , expected]] of cases.entries())
      expect([call, await ofRequest(requestIds[at] ?? "")]).toMatchObject([
        call,
        [{ outcome: "denied", ...expected }],
      ]);
    const kinds = (await entriesOf(`target=${id}&action=session.exec`)).map(({ actor }) => actor.kind);
    expect(kinds).toEqual(["scoped_token"]);
  });

  test("each item of a batch that is denied has one, and the others run", async () => {
    const [own, foreign] = [await control.createLive(), await control.createLive({}, await control.addKey())];
    const body = { session_ids: [own, foreign], command: ["true"] };
    const { entries } = await audited("POST /v1/sessions/batch/exec", { body });
    expect(entries.map(({ target, outcome, code }) => [target, outcome, code]).toSorted()).toEqual(
      [
        [own, "ok", undefined],
        [foreign, "denied", "not_found"],
      ].toSorted(),
    );
  });

  test("a WebSocket that is refused has one", async () => {
    const foreign = await control.createLive({}, await control.addKey());
    const refused = connect(control, `/v1/sessions/${foreign}/pty`);
    await refused.opened().catch(() => undefined);
    await eventually(async () =>
      expect(await entriesOf(`target=${foreign}&action=terminal.open`)).toMatchObject([
        { outcome: "denied", code: "not_found" },
      ]),
    );
  });

  test("a ceiling that is reached is one", async () => {
    await control.sql.query("update orgs set concurrent_sessions = 0 where name = 'default'");
    const { entries } = await audited("POST /v1/sessions", { body: {} });
    await control.sql.query("update orgs set concurrent_sessions = 10 where name = 'default'");
    expect(entries).toMatchObject([
      { action: "session.create", outcome: "denied", code: "account_concurrency_exceeded" },
    ]);
  });

  test.each([
    ["an invalid request", "POST /v1/sessions", { size: "huge" }],
    ["a path that does not exist", "GET /v1/nothing", undefined],
    ["a project that does not exist is", "DELETE /v1/projects/none", undefined],
  ])("%s: none but of a thing that was asked for", async (what, call, body) => {
    const { entries } = await audited(call, { body });
    expect(entries).toHaveLength(what.endsWith(" is") ? 1 : 0);
  });

  test("a key that was revoked is named by its id; a key that never was is nobody", async () => {
    const made = (await control.ask("POST /v1/api-keys", { body: { name: "gone" } })).body;
    await control.ask(`DELETE /v1/api-keys/${made.id}`);
    const ended = await audited("GET /v1/sessions", { key: made.key });
    expect(ended.entries).toMatchObject([
      {
        actor: { kind: "api_key", id: made.id },
        code: "unauthenticated",
        meta: { operation: "listSessions" },
      },
    ]);
    const theirs = await control.createLive({}, await control.addKey());
    for (const key of [`viv_${"x".repeat(40)}`, "secret", null]) {
      const { entries } = await audited(`GET /v1/sessions/${theirs}`, { key });
      expect(entries).toMatchObject([{ actor: { kind: "anonymous", id: "anonymous" }, target: "" }]);
      // The thing may be another organisation's, so not even its id is shown.
      expect(JSON.stringify(entries)).not.toContain(theirs);
    }
  });
});

describe("filters", () => {
  test("actor, action and target find what they name, and only that", async () => {
    const key = await control.ask("POST /v1/api-keys", { body: { name: "filtered" } });
    const id = await control.createLive({}, key.body.key);
    const all = await entriesOf("");
    for (const [query, keep] of [
      [`actor=${key.body.id}`, ({ actor }: Entry) => actor.id === key.body.id],
      ["action=key.create", ({ action }: Entry) => action === "key.create"],
      [`target=${id}`, ({ target }: Entry) => target === id],
    ] as const) {
      const found = (await entriesOf(query)).map((entry) => entry.id);
      expect([query, found]).toEqual([query, all.filter(keep).map((entry) => entry.id)]);
      expect(found.length).toBeGreaterThan(0);
    }
    expect(await entriesOf("actor=nobody")).toEqual([]);
  });

  test.each(["actor=a&actor=b", "target=a&target=b", "session_id=a&session_id=b", "target=%00"])(
    "%s is 400 and names the parameter",
    async (query) => {
      const { status, body } = await control.ask(`GET /v1/audit?${query}`);
      expect([status, body.code, body.error.split(":")[0]]).toEqual([400, "validation", query.split("=")[0]]);
    },
  );
});

test("every entry of these tests is as the service sealed it, when the database gives it back", async () => {
  const auditKey = auditKeyOf(await loadPepper(control.settings.controlDir));
  const { rows } = await control.sql.query("select * from audit_log");
  expect(rows.length).toBeGreaterThan(50);
  expect(rows.filter((row) => !isSealed(auditKey, row))).toEqual([]);
});

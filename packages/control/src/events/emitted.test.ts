import type { EgressEntry } from "@vivarium/contract/gateway";
import { Refusal } from "@vivarium/contract/test-support/node";
import { randomId } from "@vivarium/kit/id";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { TestClock } from "../../test-support/test-clock.ts";

const MINUTE_MS = 60_000;
let control: Control;
let clock: TestClock;
beforeAll(async () => {
  control = await startControl();
  clock = await TestClock.install(control.sql);
});
afterAll(() => control.close());
afterEach(async () => {
  control.node.onStart = () => undefined;
  control.node.report = { ...control.node.report, counters: [], entries: [] };
  await control.destroyAll();
});

interface Emitted {
  type: string;
  session_id?: string;
  project_id?: string;
  data: Record<string, unknown>;
}

async function emitted(query: string): Promise<Emitted[]> {
  const answer = await control.ask(`GET /v1/events?limit=200&${query}`, {
    headers: { accept: "application/json" },
  });
  return answer.body.events;
}
const of = (id: string, types = "*") => emitted(`session_id=${id}${types === "*" ? "" : `&types=${types}`}`);
const post = (id: string, path: string, body: object = {}) =>
  control.ask(`POST /v1/sessions/${id}/${path}`, { body });

test("events of a session's life are in order", async () => {
  const id = await control.createLive();
  const { body: checkpoint } = await post(id, "checkpoints");
  await post(id, "pause");
  await post(id, "resume");
  await post(id, "restore", { checkpoint_id: checkpoint.checkpoint_id });
  await control.ask(`DELETE /v1/sessions/${id}`);
  expect((await of(id)).map(({ type, data }) => [type, data])).toEqual([
    ["session.created", { state: "creating" }],
    ["session.live", { state: "live" }],
    ["checkpoint.created", { checkpoint_id: checkpoint.checkpoint_id, size_bytes: checkpoint.size_bytes }],
    ["session.paused", { state: "paused", reason: "pause" }],
    ["session.resumed", { state: "live", reason: "resume" }],
    ["session.restored", { state: "live", reason: "restore", checkpoint_id: checkpoint.checkpoint_id }],
    ["session.destroyed", { end_reason: "client_destroy" }],
  ]);
});

test("a fork is an event of the parent with its children, and each child is created and live", async () => {
  const id = await control.createLive();
  const { children } = (await post(id, "fork", { count: 2 })).body;
  expect((await of(id, "session.forked")).map(({ data }) => data)).toEqual([{ state: "live", children }]);
  for (const child of children)
    expect((await of(child)).map(({ type }) => type)).toEqual(["session.created", "session.live"]);
});

test("a start from a checkpoint names it", async () => {
  const id = await control.createLive();
  const { body: checkpoint } = await post(id, "checkpoints");
  const started = (
    await control.ask(`POST /v1/checkpoints/${checkpoint.checkpoint_id}/sessions`, { body: {} })
  ).body;
  expect((await of(started.session_id, "session.created"))[0]?.data).toMatchObject({
    checkpoint_id: checkpoint.checkpoint_id,
  });
});

test("a deleted checkpoint is one event, of the session it was made from", async () => {
  const id = await control.createLive();
  const { checkpoint_id, size_bytes } = (await post(id, "checkpoints")).body;
  await control.ask(`DELETE /v1/sessions/${id}`);
  expect(size_bytes).toBeGreaterThan(0);
  expect((await control.ask(`DELETE /v1/checkpoints/${checkpoint_id}`)).status).toBe(204);
  expect((await control.ask(`DELETE /v1/checkpoints/${checkpoint_id}`)).status).toBe(404);
  expect((await of(id, "checkpoint.deleted")).map(({ data }) => data)).toEqual([
    { checkpoint_id, size_bytes },
  ]);
});

test("a failed checkpoint emits nothing", async () => {
  const id = await control.createLive();
  expect((await post(id, "checkpoints", { name: "same" })).status).toBe(200);
  expect((await post(id, "checkpoints", { name: "same" })).status).toBe(409);
  expect(await of(id, "checkpoint.*")).toHaveLength(1);
});

test("each version of a template emits when it is made and when it is deleted", async () => {
  const id = await control.createLive();
  const name = "emitted-template";
  for (const version of [1, 2])
    expect((await post(id, "templates", { name })).body).toMatchObject({ name, version: String(version) });
  expect((await of(id, "template.*")).map(({ type, data }) => [type, data])).toEqual([
    ["template.ready", { name, version: "1" }],
    ["template.ready", { name, version: "2" }],
  ]);
  expect((await control.ask(`DELETE /v1/templates/${name}`)).status).toBe(204);
  expect((await control.ask(`DELETE /v1/templates/${name}`)).status).toBe(404);
  const gone = await emitted("types=template.deleted");
  expect(gone.map(({ session_id, data }) => [session_id, data.name, data.version]).sort()).toEqual([
    [undefined, name, "1"],
    [undefined, name, "2"],
  ]);
});

test("a create that is rolled back emits nothing", async () => {
  const before = await emitted("types=session.created");
  const refused = await control.ask("POST /v1/sessions", { body: { template: "nowhere" } });
  expect(refused.status).toBeGreaterThanOrEqual(400);
  expect(await emitted("types=session.created")).toEqual(before);
});

test("a machine that cannot be made is an event with the reason", async () => {
  control.node.onStart = () => {
    throw new Refusal("template_unavailable", "no baseline");
  };
  const id = await control.create();
  await control.until(id, "failed");
  const [failed] = await of(id, "session.failed");
  expect(failed?.data).toEqual({ status_reason: expect.stringContaining("baseline") });
});

test("previews emit when they are made, changed and removed, and never with a token", async () => {
  const id = await control.createLive();
  const { body: exposed } = await post(id, "expose", { port: 8000, auth: "bearer" });
  await post(id, "expose", { port: 8000, auth: "bearer" });
  await post(id, "expose", { port: 8000, visibility: "public" });
  await post(id, "unexpose", { port: 8000 });
  await post(id, "unexpose", { port: 8000 });
  const events = await of(id, "preview.*");
  expect(events.map(({ type, data }) => [type, data])).toEqual([
    ["preview.exposed", { port: 8000, visibility: "token", auth: "bearer" }],
    ["preview.updated", { port: 8000, visibility: "public", auth: "none" }],
    ["preview.unexposed", { port: 8000, visibility: "public", auth: "none" }],
  ]);
  const { rows } = await control.sql.query("select string_agg(events::text, ' ') as text from events");
  expect(exposed.ingress_token.length + exposed.auth_token.length).toBeGreaterThan(60);
  for (const secret of [exposed.ingress_token, exposed.auth_token])
    expect(rows[0].text).not.toContain(secret);
});

function count(id: string, bytes: number): void {
  const counter = {
    machine_id: `${id}-1`,
    egress_bytes: bytes,
    ingress_bytes: 0,
    dropped_packets: 0,
    is_capped: false,
  };
  control.node.report = { ...control.node.report, counters: [counter] };
}

test("reaching the cap emits once a day, with the day's figures", async () => {
  const id = await control.createLive({ egress_cap_bytes: 1000 });
  count(id, 900);
  await eventually(async () =>
    expect((await control.ask(`GET /v1/sessions/${id}/egress-cap`)).body.today_bytes).toBe(900),
  );
  expect(await of(id, "egress.session_capped")).toEqual([]);
  count(id, 1200);
  const capped = () => of(id, "egress.session_capped");
  await eventually(async () => expect(await capped()).toHaveLength(1));
  expect((await capped())[0]).toMatchObject({ data: { cap_bytes: 1000, today_bytes: 1200 } });
  count(id, 1300);
  await eventually(async () =>
    expect((await control.ask(`GET /v1/sessions/${id}/egress-cap`)).body.today_bytes).toBe(1300),
  );
  expect(await capped()).toHaveLength(1);
  await clock.advance(86_400_000);
  count(id, 1400);
  await eventually(async () =>
    expect((await control.ask(`GET /v1/sessions/${id}/egress-cap`)).body.today_bytes).toBe(100),
  );
  count(id, 2600);
  await eventually(async () => expect(await capped()).toHaveLength(2));
});

/** Advances the clock to the beginning of a minute, so that two reports are within one minute. */
async function beginMinute(): Promise<void> {
  const now = Date.parse(await clock.at());
  await clock.advance(MINUTE_MS - (now % MINUTE_MS) + 50);
}

let cursor = 0;
async function report(id: string, entries: Partial<EgressEntry>[]): Promise<void> {
  cursor += 1;
  const whole = entries.map((entry) => ({
    machine_id: `${id}-1`,
    at: "2027-03-01T09:30:00.125Z",
    kind: "tls" as const,
    host: "api.example.com",
    port: 443,
    bytes_out: 0,
    bytes_in: 0,
    verdict: "denied" as const,
    reason: "name_not_allowed" as const,
    ...entry,
  }));
  control.node.report = { ...control.node.report, entries: whole, cursor: `t${cursor}` };
  await eventually(async () => {
    const { rows } = await control.sql.query("select cursor from node_reports");
    expect(rows[0]?.cursor).toBe(`t${cursor}`);
  });
}

test("denials are emitted once their minute is over, each destination with its count", async () => {
  const id = await control.createLive();
  await beginMinute();
  await report(id, [
    {},
    { count: 2 },
    { host: undefined, address: "8.8.4.4", port: 22, reason: "port_not_allowed" },
  ]);
  await report(id, [{ count: 4 }, { host: "ok.example.com", verdict: "allowed", reason: "name_allowed" }]);
  expect(await of(id, "egress.denied")).toEqual([]);
  await clock.advance(MINUTE_MS);
  await eventually(async () => expect(await of(id, "egress.denied")).toHaveLength(2));
  expect((await of(id, "egress.denied")).map(({ data }) => data)).toEqual([
    { host: "api.example.com", port: 443, reason: "name_not_allowed", count: 7 },
    { address: "8.8.4.4", port: 22, reason: "port_not_allowed", count: 1 },
  ]);
  await clock.advance(MINUTE_MS);
  await report(id, [{}]);
  expect(await of(id, "egress.denied")).toHaveLength(2);
});

test("a guest that tries countless destinations causes few events, and their counts are complete", async () => {
  const id = await control.createLive();
  await report(
    id,
    Array.from({ length: 300 }, (_, index) => ({ host: `h${index}.example.com\0` })),
  );
  await clock.advance(MINUTE_MS);
  await eventually(async () => expect((await of(id, "egress.denied")).length).toBeGreaterThan(0));
  const events = await of(id, "egress.denied");
  expect(events).toHaveLength(21);
  expect(events.at(-1)?.data).toEqual({ reason: "name_not_allowed", count: 280 });
  expect(events.reduce((sum, { data }) => sum + Number(data.count), 0)).toBe(300);
});

test("more names than a session may ask for are an anomaly of its minute, and nothing else", async () => {
  const id = await control.createLive();
  await beginMinute();
  const question = { kind: "dns" as const, port: 53 };
  const tunnel = Array.from({ length: 30 }, (_, index) => ({
    ...{ ...question, host: `secret${index}.t.example.com`, reason: "too_many_names" as const },
  }));
  await report(id, [...tunnel, { ...question, count: 2 }]);
  await report(id, [...tunnel, { reason: "too_many" }]);
  await clock.advance(MINUTE_MS);
  const both = "egress.denied,dns.anomaly";
  await eventually(async () => expect((await of(id, both)).length).toBeGreaterThan(0));
  expect((await of(id, both)).map(({ type, data }) => [type, data])).toEqual([
    ["dns.anomaly", { port: 53, reason: "too_many_names", count: 60 }],
    ["egress.denied", { host: "api.example.com", port: 53, reason: "name_not_allowed", count: 2 }],
    ["egress.denied", { host: "api.example.com", port: 443, reason: "too_many", count: 1 }],
  ]);
});

test("a wake that is refused for lack of capacity emits once a minute, to the whole organisation", async () => {
  const id = await control.createLive();
  await post(id, "pause");
  control.node.onStart = () => {
    throw new Refusal("disk_pressure", "too little disk");
  };
  const refusals = () => of(id, "session.wake_refused");
  for (let attempt = 0; attempt < 2; attempt++)
    expect((await post(id, "resume")).body.code).toBe("node_disk_pressure");
  expect((await refusals()).map(({ data }) => data)).toEqual([
    { code: "node_disk_pressure", reason: expect.any(String), retry_after: expect.any(Number), op: "resume" },
  ]);
  await clock.advance(MINUTE_MS + 1);
  await post(id, "resume");
  expect(await refusals()).toHaveLength(2);
});

test("a restore that would wake its session is a wake that is refused", async () => {
  const id = await control.createLive();
  const { checkpoint_id } = (await post(id, "checkpoints")).body;
  await post(id, "pause");
  await control.sql.query("update orgs set concurrent_sessions = 1");
  await control.createLive();
  const { code } = (await post(id, "restore", { checkpoint_id })).body;
  await control.sql.query("update orgs set concurrent_sessions = 10");
  expect((await of(id, "session.wake_refused")).map(({ data }) => [data.code, data.op])).toEqual([
    [code, "restore"],
  ]);
  expect(code).toBe("account_concurrency_exceeded");
});

test("a create that is refused for lack of capacity emits without a session, and an invalid one does not", async () => {
  await control.sql.query("update orgs set concurrent_sessions = 1");
  const id = await control.createLive();
  const refusals = async () =>
    (await emitted("types=session.create_refused")).map(({ data: { code, op } }) => [code, op]);
  const before = await refusals();
  await control.ask("POST /v1/sessions", { body: { size: "huge" } });
  expect(await refusals()).toEqual(before);
  await control.ask("POST /v1/sessions", { body: {} });
  await post(id, "fork", { count: 1 });
  await control.ask("POST /v1/sessions/exec", { body: { language: "python", code: "1" } });
  await control.sql.query("update orgs set concurrent_sessions = 10");
  expect((await refusals()).slice(before.length)).toEqual(
    ["create", "fork", "run"].map((op) => ["account_concurrency_exceeded", op]),
  );
  const [last] = (await emitted("types=session.create_refused")).slice(-1);
  expect(last).not.toHaveProperty("session_id");
});

test("a create that was refused in one project does not silence the refusal in another", async () => {
  const { rows } = await control.sql.query("select org_id from projects limit 1");
  const projects = [`prj_${randomId()}`, `prj_${randomId()}`];
  for (const id of projects) {
    await control.sql.query("insert into projects (id, org_id, name) values ($1, $2, $1)", [
      id,
      rows[0].org_id,
    ]);
  }
  await control.sql.query("update orgs set concurrent_sessions = 0");
  for (const project_id of [...projects, ...projects])
    expect((await control.ask("POST /v1/sessions", { body: { project_id } })).status).toBe(429);
  await control.sql.query("update orgs set concurrent_sessions = 10");
  const refusals = (await emitted("types=session.create_refused")).map(({ project_id }) => project_id);
  expect(refusals.filter((id) => projects.includes(id ?? ""))).toEqual(projects);
});

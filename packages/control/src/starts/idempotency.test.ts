import { randomId } from "@vivarium/kit/id";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Answer, type Control, startControl } from "../../test-support/control.ts";

let control: Control;
beforeAll(async () => {
  control = await startControl();
  await control.sql.query("update orgs set concurrent_sessions = 100");
});
afterAll(() => control.close());

const create = (key: string, body?: unknown, as?: string): Promise<Answer> =>
  control.ask("POST /v1/sessions", { body, headers: { "idempotency-key": key }, ...(as && { key: as }) });

test("the same key and body give the same session, marked as replayed", async () => {
  const first = await create("a", { name: "n1", labels: { x: "1", y: "2" } });
  expect(first.headers["idempotent-replayed"]).toBeUndefined();
  const again = await create("a", { labels: { y: "2", x: "1" }, name: "n1", size: null, no_such_field: 1 });
  expect(again.status).toBe(200);
  expect(again.headers["idempotent-replayed"]).toBe("true");
  expect(again.body.session_id).toBe(first.body.session_id);
});

test("zero milliseconds are the same as an omitted field", async () => {
  const zeros = { paused_ttl_ms: 0, idle_timeout_ms: 0, max_lifetime_ms: 0 };
  const first = await create("zero", zeros);
  const again = await create("zero", {});
  expect([again.status, again.body.session_id]).toEqual([200, first.body.session_id]);
  expect(again.body.paused_ttl_ms).toBe(2_592_000_000);
});

test("the alias of on_pty_detach counts as on_pty_detach", async () => {
  const first = await create("alias", { on_detach: "destroy" });
  const again = await create("alias", { on_pty_detach: "destroy" });
  expect(again.body.session_id).toBe(first.body.session_id);
});

test.each([
  ["null and nothing", [{}, { template: null, size: null, labels: null, env: null, name: null }]],
  ["zero milliseconds, null and nothing", [{}, { idle_timeout_ms: 0 }, { idle_timeout_ms: null }]],
  [
    "the order of keys",
    [
      { size: "small", env: { A: "1", B: "2" } },
      { env: { B: "2", A: "1" }, size: "small" },
    ],
  ],
  [
    "the alias beside its field",
    [{ on_pty_detach: "destroy" }, { on_pty_detach: "destroy", on_detach: "destroy" }],
  ],
])("%s do not change the body", async (title, [first = {}, ...same]) => {
  const made = await create(title.replaceAll(/[ ,]+/g, "-"), first);
  expect([made.status, made.body.error]).toEqual([200, undefined]);
  for (const body of same) {
    const again = await create(title.replaceAll(/[ ,]+/g, "-"), body);
    expect([again.status, again.body.session_id]).toEqual([200, made.body.session_id]);
  }
});

test.each([
  [{}, { size: "small" }],
  [{}, { template: "base" }],
  [{}, { template: "" }],
  [{}, { labels: {} }],
  [{}, { no_sudo: false }],
  [{}, { on_pty_detach: "pause" }],
  [{}, { egress: { mode: "allow" } }],
  [{ egress: { mode: "deny" } }, { egress: { mode: "deny", allow: [] } }],
  [
    { egress: { mode: "deny", allow: ["a.example.com", "b.example.com"] } },
    { egress: { mode: "deny", allow: ["b.example.com", "a.example.com"] } },
  ],
  [{ template: "base" }, { template: "base@2027" }],
  [{ size: "small" }, { size: "medium" }],
  [{ egress: { mode: "deny" } }, { egress: { mode: "allow" } }],
  [{}, { wake_on_http: false }],
  [{}, { egress_cap_bytes: 0 }],
])("%j and %j are different bodies", async (one, other) => {
  const key = Buffer.from(JSON.stringify([one, other]))
    .toString("hex")
    .slice(-200);
  expect((await create(key, one)).status).toBe(200);
  const answer = await create(key, other);
  expect([answer.status, answer.body.code]).toEqual([409, "conflict"]);
});

test("a replay shows the session as it is now, destroyed ones included", async () => {
  const first = await create("now");
  await control.until(first.body.session_id, "live");
  expect((await create("now")).body.state).toBe("live");
  await control.ask(`DELETE /v1/sessions/${first.body.session_id}`);
  const ended = await create("now");
  expect(ended.headers["idempotent-replayed"]).toBe("true");
  expect(ended.body).toMatchObject({
    state: "ended",
    end_reason: "client_destroy",
    session_id: first.body.session_id,
  });
});

test("the same key with another body is a conflict", async () => {
  await create("other", { env: { A: "1" } });
  const answer = await create("other", { env: { A: "2" } });
  expect([answer.status, answer.body.code]).toEqual([409, "conflict"]);
  expect(answer.headers["retry-after"]).toBeUndefined();
});

test("the same key and body in another project are a conflict, and show nothing of the first", async () => {
  const { rows } = await control.sql.query("select org_id from projects limit 1");
  const [{ org_id: orgId }] = rows;
  const projectId = `prj_${randomId()}`;
  await control.sql.query("insert into projects (id, org_id, name) values ($1, $2, 'second')", [
    projectId,
    orgId,
  ]);
  const scoped = await control.addKey({ orgId, scopedProjectId: projectId });
  const first = await create("project", { name: "first" });
  expect(first.status).toBe(200);
  const other = await create("project", { name: "first" }, scoped);
  expect([other.status, other.body.code, other.body.session_id]).toEqual([409, "conflict", undefined]);
});

test("another API key of the same organisation gets the session that the first one made", async () => {
  const second = (await control.ask("POST /v1/api-keys", { body: { name: "second" } })).body.key;
  const first = await create("two-keys", { size: "medium" });
  const again = await create("two-keys", { size: "medium" }, second);
  expect([again.status, again.headers["idempotent-replayed"]]).toEqual([200, "true"]);
  expect(again.body.session_id).toBe(first.body.session_id);
  expect((await create("two-keys", { size: "small" }, second)).body.code).toBe("conflict");
});

test("a key is scoped to its organisation", async () => {
  const other = await control.addKey();
  const mine = await create("shared");
  const theirs = await create("shared", undefined, other);
  expect(theirs.headers["idempotent-replayed"]).toBeUndefined();
  expect(theirs.body.session_id).not.toBe(mine.body.session_id);
});

test("simultaneous requests with one key make one session; later ones get it, or the error that it is in progress", async () => {
  const answers = await Promise.all(Array.from({ length: 10 }, () => create("race")));
  const ids = new Set(answers.filter(({ status }) => status === 200).map(({ body }) => body.session_id));
  expect(ids.size).toBe(1);
  for (const { status, body, headers } of answers.filter((answer) => answer.status !== 200)) {
    expect([status, body.code, headers["retry-after"]]).toEqual([409, "idempotency_key_in_progress", "1"]);
  }
});

test("while a request with the key is in progress, another gets that error", async () => {
  const { rows } = await control.sql.query("select org_id from api_keys order by created_at limit 1");
  await control.sql.query("begin");
  await control.sql.query("select pg_advisory_xact_lock(hashtextextended($1, 0))", [
    `${rows[0].org_id} busy`,
  ]);
  const answer = await create("busy");
  await control.sql.query("rollback");
  expect([answer.status, answer.body.code]).toEqual([409, "idempotency_key_in_progress"]);
  expect((await create("busy")).status).toBe(200);
});

test("a create that is refused releases its key", async () => {
  expect((await create("released", { template: "none" })).status).toBe(404);
  const answer = await create("released", { name: "another body" });
  expect(answer.status).toBe(200);
  expect(answer.headers["idempotent-replayed"]).toBeUndefined();
});

test("after 24 hours a key can be used again", async () => {
  const first = await create("old");
  await control.sql.query(
    "update idempotency_keys set created_at = now() - interval '24 hours 1 second' where key = 'old'",
  );
  const answer = await create("old");
  expect(answer.body.session_id).not.toBe(first.body.session_id);
});

test.each(["", "a b", "ü", "x".repeat(256), "a,b"])("the key %j is refused", async (key) => {
  const answer = await create(key);
  expect([answer.status, answer.body.code]).toEqual([400, "validation"]);
  expect(answer.body.error).toMatch(/^Idempotency-Key: must be 1 to 255/);
});

test("every allowed character is accepted, up to 255 of them", async () => {
  expect((await create("AZaz09_.:=+/-".padEnd(255, "x"))).status).toBe(200);
});

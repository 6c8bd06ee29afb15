/** API keys: what each may do, what it may give, and what ends with it. */
import { once } from "node:events";
import { request } from "node:http";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type Answer, type Ask, type Control, eventually, startControl } from "../../test-support/control.ts";
import { addressOf, connect } from "../../test-support/terminal-client.ts";
import { hasKeySum, newApiKey } from "../access/api-key.ts";

let control: Control;
beforeAll(async () => {
  control = await startControl();
  await control.app.server.listen({ host: "127.0.0.1", port: 0 });
});
afterEach(() => control.destroyAll());
afterAll(() => control.close());

const make = (body: object, key?: string): Promise<Answer> =>
  control.ask("POST /v1/api-keys", { body: { name: "made", ...body }, ...(key && { key }) });
const list = async (key?: string) =>
  (await control.ask("GET /v1/api-keys", key ? { key } : {})).body.api_keys as Record<string, unknown>[];
const codeOf = async (call: string, ask?: Ask) => {
  const { status, body } = await control.ask(call, ask);
  return [status, body?.code];
};
const inDays = (days: number) => new Date(Date.now() + days * 86_400_000).toISOString();

test("a key is shown once, with a sum, and works; lists show its beginning and what it may do", async () => {
  const answer = await make({ name: "ci", role: "read", concurrent_sessions: 2, expires_at: inDays(1) });
  expect([answer.status, answer.headers["cache-control"]]).toEqual([201, "no-store"]);
  const { key, ...record } = answer.body;
  expect(record).toEqual({
    id: expect.stringMatching(/^key_[a-z0-9]{21}$/),
    name: "ci",
    prefix: key.slice(0, 10),
    role: "read",
    concurrent_sessions: 2,
    created_at: expect.stringMatching(/Z$/),
    expires_at: expect.stringMatching(/Z$/),
  });
  expect(hasKeySum(key)).toBe(true);
  expect(await codeOf("GET /v1/org", { key })).toEqual([200, undefined]);
  await eventually(async () => {
    const found = (await list()).find(({ id }) => id === record.id);
    expect(found).toEqual({ ...record, last_used_at: expect.stringMatching(/Z$/) });
  });
  expect(JSON.stringify(await list())).not.toContain(key.slice(10));
});

test("a text with one other character has not the sum of a key", () => {
  const key = newApiKey();
  expect(key).toMatch(/^viv_[A-Za-z0-9]{40}$/);
  for (const at of [4, 20, 37, 43]) {
    const other = key[at] === "a" ? "b" : "a";
    expect(hasKeySum(key.slice(0, at) + other + key.slice(at + 1))).toBe(false);
  }
});

test("the list is newest first, without revoked keys; a key of an earlier version shows its beginning once it was used", async () => {
  const [first, second] = [(await make({ name: "one" })).body, (await make({ name: "two" })).body];
  expect((await list()).slice(0, 2).map(({ name }) => name)).toEqual(["two", "one"]);
  await control.sql.query("update api_keys set prefix = null, last_used_at = null where id = $1", [first.id]);
  expect((await list()).find(({ id }) => id === first.id)).not.toHaveProperty("prefix");
  await control.ask("GET /v1/org", { key: first.key });
  await eventually(async () =>
    expect((await list()).find(({ id }) => id === first.id)?.prefix).toBe(first.prefix),
  );
  await control.ask(`DELETE /v1/api-keys/${second.id}`);
  expect((await list()).map(({ id }) => id)).not.toContain(second.id);
});

test("the use of one key changes nothing that the list shows of another", async () => {
  const [old, used] = [(await make({ name: "old" })).body, (await make({ name: "used" })).body];
  await control.sql.query("update api_keys set prefix = null where id = $1", [old.id]);
  await control.ask("GET /v1/org", { key: used.key });
  await eventually(async () =>
    expect((await list()).find(({ id }) => id === used.id)).toHaveProperty("last_used_at"),
  );
  const { prefix: _none, key: _shown, ...rest } = old;
  expect((await list()).find(({ id }) => id === old.id)).toEqual(rest);
});

test.each([
  [{ name: "" }, "name"],
  [{ name: "a\u0007" }, "name"],
  [{ name: 7 }, "name"],
  [{ role: "owner" }, "role"],
  [{ rol: "read" }, "rol"],
  [{ project: "p" }, "project"],
  [{ concurrent_sessions: -1 }, "concurrent_sessions"],
  [{ concurrent_sessions: 1.5 }, "concurrent_sessions"],
  [{ expires_at: "tomorrow" }, "expires_at"],
  [{ expires_at: "2001-01-01T00:00:00Z" }, "expires_at"],
])("%j is refused with the field's name, and makes no key", async (body, field) => {
  const before = (await list()).length;
  const answer = await make(body);
  expect([answer.status, answer.body.code]).toEqual([400, "validation"]);
  expect(answer.body.error.startsWith(`${field}:`)).toBe(true);
  expect(await list()).toHaveLength(before);
});

test("a key gives no more than it has: ceiling, expiry and project are at most its own", async () => {
  const expires_at = inDays(2);
  const { key } = (await make({ concurrent_sessions: 3, expires_at })).body;
  const heir = (await make({}, key)).body;
  expect([heir.concurrent_sessions, heir.expires_at]).toEqual([3, expires_at]);
  for (const more of [{ concurrent_sessions: 4 }, { expires_at: inDays(3) }]) {
    const answer = await make(more, key);
    expect([answer.status, answer.body.code]).toEqual([403, "forbidden"]);
    expect(answer.body.error.startsWith(`${Object.keys(more)[0]}:`)).toBe(true);
  }
  expect((await make({ concurrent_sessions: 2, expires_at: inDays(1) }, key)).status).toBe(201);
});

test("the ceiling of a key counts the sessions that were made with it", async () => {
  const { key } = (await make({ concurrent_sessions: 1 })).body;
  await control.createLive({}, key);
  expect(await codeOf("POST /v1/sessions", { key })).toEqual([429, "key_concurrency_exceeded"]);
  expect((await control.ask("POST /v1/sessions")).status).toBe(200);
});

describe("a key of a project", () => {
  let project: string;
  let key: string;
  beforeAll(async () => {
    project = (await control.ask("POST /v1/projects", { body: { name: "p" } })).body.id;
    key = (await make({ project_id: project })).body.key;
  });

  test("makes, lists and revokes keys of its project alone", async () => {
    const made = (await make({ name: "inside" }, key)).body;
    expect(made.project_id).toBe(project);
    expect((await list(key)).every(({ project_id }) => project_id === project)).toBe(true);
    const outside = (await make({ name: "outside" })).body;
    expect(await codeOf(`DELETE /v1/api-keys/${outside.id}`, { key })).toEqual([404, "not_found"]);
    expect(await codeOf(`DELETE /v1/api-keys/${made.id}`, { key })).toEqual([204, undefined]);
  });

  test("names no other project, whether it exists or not", async () => {
    const other = (await control.ask("POST /v1/projects", { body: { name: "q" } })).body.id;
    for (const project_id of [other, `prj_${"a".repeat(21)}`, "nonsense"])
      expect((await make({ project_id }, key)).status).toBe(403);
    expect((await make({ project_id: `prj_${"a".repeat(21)}` })).status).toBe(404);
  });
});

test("the last key that can manage keys stays, also when two are revoked at once", async () => {
  const org = await control.addKey();
  const [own] = await list(org);
  await make({ name: "short", expires_at: inDays(1) }, org);
  await make({ name: "reader", role: "read" }, org);
  expect(await codeOf(`DELETE /v1/api-keys/${own?.id}`, { key: org })).toEqual([409, "conflict"]);
  const second = (await make({ name: "second" }, org)).body;
  const answers = await Promise.all([
    codeOf(`DELETE /v1/api-keys/${own?.id}`, { key: org }),
    codeOf(`DELETE /v1/api-keys/${second.id}`, { key: second.key }),
  ]);
  expect(answers.map(([status]) => status).toSorted()).toEqual([204, 409]);
});

test("revoking is final: the key is refused from the answer on, and revoking it again is no error", async () => {
  const { id, key } = (await make({})).body;
  expect((await control.ask("GET /v1/org", { key })).status).toBe(200);
  for (const _time of [1, 2]) expect(await codeOf(`DELETE /v1/api-keys/${id}`)).toEqual([204, undefined]);
  expect(await codeOf("GET /v1/org", { key })).toEqual([401, "unauthenticated"]);
});

test("a key can revoke itself, and its request is answered", async () => {
  const { id, key } = (await make({})).body;
  const answer = await fetch(`http://${addressOf(control)}/v1/api-keys/${id}`, {
    method: "DELETE",
    headers: { authorization: `Bearer ${key}` },
  });
  expect(answer.status).toBe(204);
  expect((await control.ask("GET /v1/org", { key })).status).toBe(401);
});

/** Opens the event stream, which has no end, and resolves once the first bytes are there. */
async function openEvents(key: string) {
  const events = request(`http://${addressOf(control)}/v1/events`, {
    headers: { authorization: `Bearer ${key}`, accept: "text/event-stream" },
  }).end();
  events.on("error", () => {});
  const [response] = await once(events, "response");
  response.resume();
  response.on("error", () => {});
  const ended = new Promise((resolve) => response.once("close", resolve));
  return { ended, isOpen: () => response.statusCode === 200 && !response.destroyed };
}

describe.each([
  ["revoked", "update api_keys set revoked_at = now() where id = $1"],
  ["expired", "update api_keys set expires_at = now() where id = $1"],
])("what a key has open ends when it is %s through another process", (_how, statement) => {
  test("event streams and terminals, and none of another key", async () => {
    const { id, key } = (await make({})).body;
    const session = await control.createLive();
    const terminal = await connect(control, `/v1/sessions/${session}/pty`, { key }).opened();
    const [mine, other] = [await openEvents(key), await openEvents(control.key)];
    expect([mine.isOpen(), other.isOpen()]).toEqual([true, true]);
    await control.sql.query(statement, [id]);
    await mine.ended;
    expect(await terminal.closed).toBe(1008);
    expect(other.isOpen()).toBe(true);
  });
});

test("what a key has open ends when it is revoked here", async () => {
  const { id, key } = (await make({})).body;
  const stream = await openEvents(key);
  await control.ask(`DELETE /v1/api-keys/${id}`);
  await stream.ended;
});

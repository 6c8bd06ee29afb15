import { Refusal } from "@vivarium/contract/test-support/node";
import { randomId } from "@vivarium/kit/id";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";

let control: Control;
beforeAll(async () => {
  control = await startControl();
});
afterEach(async () => {
  control.node.onSnapshot = () => {};
  await control.destroyAll();
  await control.sql.query("delete from checkpoints");
  control.node.snapshots.clear();
});
afterAll(() => control.close());

const checkpoint = (id: string, body?: object, query = "") =>
  control.ask(`POST /v1/sessions/${id}/checkpoints${query}`, { body });
const pause = (id: string) => control.ask(`POST /v1/sessions/${id}/pause`);
const stateOf = async (id: string) => (await control.ask(`GET /v1/sessions/${id}`)).body.state;
const snapshotsOf = (kind: string) =>
  [...control.node.snapshots.keys()].filter((id) => id.startsWith(`${kind}_`));
const opOf = async (id: string) =>
  (await control.sql.query("select op from sessions where id = $1", [id])).rows[0].op;

test("a live session keeps running during a checkpoint", async () => {
  const id = await control.createLive();
  const { status, body } = await checkpoint(id, { name: "first", labels: { step: "1" }, ignored: true });
  expect(status).toBe(200);
  expect(body).toEqual({
    checkpoint_id: expect.stringMatching(/^chk_[a-z0-9]{21}$/),
    parent_session_id: id,
    session_id: id,
    name: "first",
    labels: { step: "1" },
    size_bytes: 4096,
    created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
  });
  expect(control.node.snapshots.get(body.checkpoint_id)?.spec).toEqual({
    machine_id: `${id}-1`,
    after: "continue",
  });
  expect(control.node.machines.get(`${id}-1`)?.state).toBe("running");
  expect([await stateOf(id), await opOf(id)]).toEqual(["live", null]);
});

test("a body is optional, and fields that are not set are left out", async () => {
  const id = await control.createLive();
  for (const body of [undefined, {}, { name: null, labels: null }, { labels: {} }]) {
    const answer = await checkpoint(id, body);
    expect(answer.status).toBe(200);
    expect(Object.keys(answer.body).sort()).toEqual([
      "checkpoint_id",
      "created_at",
      "parent_session_id",
      "session_id",
      "size_bytes",
    ]);
  }
});

test("the timing is answered on request", async () => {
  const id = await control.createLive();
  const { body } = await checkpoint(id, undefined, "?timing=true");
  expect(body.timing).toEqual({
    freeze: 1,
    state: 2,
    memory: 3,
    disk: 4,
    publish: 5,
    stopped: 6,
    total: expect.any(Number),
  });
});

test("a paused session is not woken: its saved state is shared", async () => {
  const id = await control.createLive();
  await pause(id);
  const { rows } = await control.sql.query("select snapshot_id from sessions where id = $1", [id]);
  const { status, body } = await checkpoint(id);
  expect(status).toBe(200);
  expect(control.node.snapshots.get(body.checkpoint_id)?.spec).toEqual({ snapshot_id: rows[0].snapshot_id });
  expect(await stateOf(id)).toBe("paused");
  await eventually(() =>
    expect([...control.node.machines.keys()].filter((name) => name.startsWith(id))).toEqual([]),
  );
});

test.each([
  ["name", "", /^name: must be 1 to 63 of a-z, 0-9 and hyphens/],
  ["name", "-a", /^name: must be 1 to 63/],
  ["name", "a-", /^name: must be 1 to 63/],
  ["name", "A", /^name: must be 1 to 63/],
  ["name", "a_b", /^name: must be 1 to 63/],
  ["name", "x".repeat(64), /^name: must be 1 to 63/],
  ["name", 7, /^name: must be a string, got 7/],
  ["labels", { a: 1 }, /^labels\.a: must be a string/],
  ["labels", [], /^labels: must be an object/],
])("%s = %j is refused by name", async (field, value, message) => {
  const answer = await checkpoint(randomId(), { [field]: value });
  expect([answer.status, answer.body.code]).toEqual([400, "validation"]);
  expect(answer.body.error).toMatch(message);
});

test("a name of 63 characters is accepted", async () => {
  const id = await control.createLive();
  expect((await checkpoint(id, { name: "x".repeat(63) })).status).toBe(200);
});

test("a name is unique among the checkpoints of a session, and free again after a delete", async () => {
  const [one, other] = [await control.createLive(), await control.createLive()];
  const first = await checkpoint(one, { name: "a" });
  const clash = await checkpoint(one, { name: "a" });
  expect([clash.status, clash.body.code]).toEqual([409, "conflict"]);
  expect(clash.body.error).toMatch(/^name: this session has a checkpoint called "a" already/);
  expect((await checkpoint(other, { name: "a" })).status).toBe(200);
  await control.ask(`DELETE /v1/checkpoints/${first.body.checkpoint_id}`);
  expect((await checkpoint(one, { name: "a" })).status).toBe(200);
});

test("of simultaneous checkpoints with one name only one is made, without orphan snapshots", async () => {
  const id = await control.createLive();
  const answers = await Promise.all(Array.from({ length: 4 }, () => checkpoint(id, { name: "race" })));
  expect(answers.map(({ status }) => status).sort()).toEqual([200, 409, 409, 409]);
  expect(snapshotsOf("chk")).toEqual(answers.flatMap(({ body }) => body.checkpoint_id ?? []));
  expect(await opOf(id)).toBe(null);
});

test("an organisation may have at most 100", async () => {
  const id = await control.createLive();
  await control.sql.query(
    `insert into checkpoints (id, org_id, session_id, size_bytes, size, template, egress, no_sudo)
     select 'chk_' || lpad(n::text, 21, '0'), s.org_id, s.id, 0, 'small', 'base', '{}', false
     from sessions s, generate_series(1, 99) n where s.id = $1`,
    [id],
  );
  const hundredth = await checkpoint(id);
  expect(hundredth.status).toBe(200);
  const refused = await checkpoint(id);
  expect([refused.status, refused.body.code]).toEqual([409, "conflict"]);
  expect(refused.body.error).toMatch(/^your organisation may keep 100 checkpoints and has 100; delete one/);
  await control.ask(`DELETE /v1/checkpoints/${hundredth.body.checkpoint_id}`);
  expect((await checkpoint(id)).status).toBe(200);
});

test("a creating or failed session cannot have a checkpoint made", async () => {
  control.node.onStart = () => {
    throw new Refusal("no_capacity");
  };
  const creating = await control.create();
  const early = await checkpoint(creating);
  expect([early.status, early.body.code, early.headers["retry-after"]]).toEqual([
    409,
    "session_not_live",
    "1",
  ]);
  control.node.onStart = () => {
    throw new Refusal("internal");
  };
  await control.until(creating, "failed");
  const late = await checkpoint(creating);
  expect([late.status, late.body.code]).toEqual([409, "conflict"]);
  expect(late.body.error).toMatch(/^the session has failed/);
  const list = await control.ask(`GET /v1/sessions/${creating}/checkpoints`);
  expect([list.status, list.body.code]).toEqual([409, "conflict"]);
  control.node.onStart = () => {};
});

test("an expired session cannot have a checkpoint made, but its checkpoints can be read", async () => {
  const id = await control.createLive();
  const kept = await checkpoint(id);
  await pause(id);
  await control.sql.query("update sessions set state = 'lifetime_expired' where id = $1", [id]);
  const answer = await checkpoint(id);
  expect([answer.status, answer.body.code]).toEqual([410, "session_ended"]);
  const { body } = await control.ask(`GET /v1/sessions/${id}/checkpoints`);
  expect(body.checkpoints).toEqual([kept.body]);
});

test.each([
  ["capture_failed", 503, "session_unavailable", /could not be saved; the session goes on as before/],
  ["disk_pressure", 503, "node_disk_pressure", /too little free disk/],
  ["machine_gone", 503, "session_unavailable", /does not answer/],
  ["internal", 500, "internal", /the node or the machine failed unexpectedly/],
] as const)(
  "a refusal of the node with %s is answered, and leaves no orphan",
  async (code, status, shown, text) => {
    const id = await control.createLive();
    control.node.onSnapshot = () => {
      throw new Refusal(code, "/secret/path: details");
    };
    const answer = await checkpoint(id, { name: "a" });
    expect([answer.status, answer.body.code]).toEqual([status, shown]);
    expect(answer.body.error).toMatch(text);
    expect(answer.body.error).not.toContain("secret");
    expect([await stateOf(id), await opOf(id), snapshotsOf("chk")]).toEqual(["live", null, []]);
    expect((await control.ask("GET /v1/checkpoints")).body.checkpoints).toEqual([]);
    control.node.onSnapshot = () => {};
    expect((await checkpoint(id, { name: "a" })).status).toBe(200);
  },
);

test("a node that is away is answered, and the session is as it was", async () => {
  const id = await control.createLive();
  await control.node.goDown();
  const answer = await checkpoint(id);
  expect([answer.status, answer.body.code]).toEqual([503, "session_node_unavailable"]);
  expect([await stateOf(id), await opOf(id)]).toEqual(["live", null]);
  await control.node.listen();
  expect((await checkpoint(id)).status).toBe(200);
});

test("damaged saved state is refused, without Retry-After", async () => {
  const id = await control.createLive();
  await pause(id);
  control.node.onSnapshot = () => {
    throw new Refusal("snapshot_damaged");
  };
  const answer = await checkpoint(id);
  expect([answer.status, answer.body.code, answer.headers["retry-after"]]).toEqual([
    500,
    "internal",
    undefined,
  ]);
  expect(answer.body.error).toMatch(/damaged/);
  expect(await stateOf(id)).toBe("paused");
});

test("a destroy during the request ends it, and no checkpoint remains", async () => {
  const id = await control.createLive();
  const { promise, resolve } = Promise.withResolvers<void>();
  control.node.onSnapshot = () => promise;
  const asked = checkpoint(id);
  await eventually(async () => expect(await opOf(id)).toBe("checkpoint"));
  expect((await control.ask(`DELETE /v1/sessions/${id}`)).status).toBe(204);
  resolve();
  const answer = await asked;
  expect([answer.status, answer.body.code]).toEqual([410, "session_ended"]);
  expect((await control.ask("GET /v1/checkpoints")).body.checkpoints).toEqual([]);
});

test("other verbs wait for a checkpoint in flight, commands do not", async () => {
  const id = await control.createLive();
  const { promise, resolve } = Promise.withResolvers<void>();
  control.node.onSnapshot = () => promise;
  const asked = checkpoint(id);
  await eventually(async () => expect(await opOf(id)).toBe("checkpoint"));
  expect((await control.exec(id)).status).toBe(200);
  const paused = pause(id);
  await new Promise((done) => setTimeout(done, 50));
  expect(await stateOf(id)).toBe("live");
  resolve();
  expect((await asked).status).toBe(200);
  expect((await paused).body.state).toBe("paused");
});

test("checkpoints outlive their session, and are listed until they are deleted", async () => {
  const id = await control.createLive();
  const { body } = await checkpoint(id);
  await control.ask(`DELETE /v1/sessions/${id}`);
  expect((await control.ask(`GET /v1/sessions/${id}/checkpoints`)).status).toBe(404);
  expect((await control.ask(`GET /v1/checkpoints/${body.checkpoint_id}`)).body).toEqual(body);
  expect((await control.ask(`GET /v1/checkpoints?session_id=${id}`)).body).toEqual({ checkpoints: [body] });
  expect(control.node.snapshots.has(body.checkpoint_id)).toBe(true);
  const deleted = await control.ask(`DELETE /v1/checkpoints/${body.checkpoint_id}`);
  expect([deleted.status, deleted.text]).toEqual([204, ""]);
  expect(control.node.snapshots.has(body.checkpoint_id)).toBe(false);
  for (const verb of ["GET", "DELETE"]) {
    const again = await control.ask(`${verb} /v1/checkpoints/${body.checkpoint_id}`);
    expect([again.status, again.body.code]).toEqual([404, "not_found"]);
  }
});

test("a delete succeeds while the node is away", async () => {
  const id = await control.createLive();
  const { body } = await checkpoint(id);
  await control.node.goDown();
  expect((await control.ask(`DELETE /v1/checkpoints/${body.checkpoint_id}`)).status).toBe(204);
  expect((await control.ask("GET /v1/checkpoints")).body).toEqual({ checkpoints: [] });
  await control.node.listen();
});

test("lists are newest first, and the organisation's list has pages", async () => {
  const [one, other] = [await control.createLive(), await control.createLive()];
  const made: string[] = [];
  for (const id of [one, other, one, other, one]) made.unshift((await checkpoint(id)).body.checkpoint_id);
  const ids = (answer: { body: { checkpoints: { checkpoint_id: string }[] } }) =>
    answer.body.checkpoints.map(({ checkpoint_id }) => checkpoint_id);
  expect(ids(await control.ask(`GET /v1/sessions/${one}/checkpoints`))).toEqual([made[0], made[2], made[4]]);
  expect(ids(await control.ask("GET /v1/checkpoints"))).toEqual(made);
  const first = await control.ask("GET /v1/checkpoints?limit=2");
  const second = await control.ask(`GET /v1/checkpoints?limit=2&cursor=${first.body.next_cursor}`);
  const third = await control.ask(`GET /v1/checkpoints?limit=2&cursor=${second.body.next_cursor}`);
  expect([first, second, third].flatMap(ids)).toEqual(made);
  expect(third.body).not.toHaveProperty("next_cursor");
  const filtered = await control.ask(`GET /v1/checkpoints?session_id=${other}&limit=1`);
  expect(ids(filtered)).toEqual([made[1]]);
  expect(filtered.body.next_cursor).toEqual(expect.any(String));
  expect((await control.ask("GET /v1/checkpoints?session_id=%01&limit=1000")).body).toEqual({
    checkpoints: [],
  });
});

test.each([
  ["limit=0", /^limit: must be a whole number of at least 1/],
  ["session_id=%00", /^session_id: must not contain a NUL/],
  ["limit=x", /^limit: must be a whole number of at least 1/],
  ["limit=1&limit=2", /^limit: must be given once/],
  ["cursor=x", /^cursor: must be the next_cursor/],
  ["session_id=a&session_id=b", /^session_id: must be given once/],
])("a list with %s is refused", async (query, message) => {
  const answer = await control.ask(`GET /v1/checkpoints?${query}`);
  expect([answer.status, answer.body.code]).toEqual([400, "validation"]);
  expect(answer.body.error).toMatch(message);
});

test("a key of one project sees and deletes only that project's checkpoints", async () => {
  const { rows } = await control.sql.query("select org_id from projects limit 1");
  const [{ org_id: orgId }] = rows;
  const projectId = `prj_${randomId()}`;
  await control.sql.query("insert into projects (id, org_id, name) values ($1, $2, 'apart')", [
    projectId,
    orgId,
  ]);
  const key = await control.addKey({ orgId, scopedProjectId: projectId });
  const outside = (await checkpoint(await control.createLive())).body.checkpoint_id;
  const inside = await control.createLive({}, key);
  const made = await control.ask(`POST /v1/sessions/${inside}/checkpoints`, { key });
  expect((await control.ask("GET /v1/checkpoints", { key })).body.checkpoints).toEqual([made.body]);
  for (const verb of ["GET", "DELETE"]) {
    expect((await control.ask(`${verb} /v1/checkpoints/${outside}`, { key })).status).toBe(404);
  }
  expect((await control.ask(`GET /v1/checkpoints/${outside}`)).status).toBe(200);
});

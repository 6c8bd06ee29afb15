import { Refusal } from "@vivarium/contract/test-support/node";
import { randomId } from "@vivarium/kit/id";
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";

let control: Control;
let clean: Record<string, number>;
beforeAll(async () => {
  control = await startControl();
  clean = await remains();
});
afterEach(async () => {
  control.node.onStart = () => {};
  control.node.onSnapshot = () => {};
  await control.destroyAll();
  // The snapshot of a fork is deleted after its answer, and the next test counts what exists.
  await eventually(async () => expect(await remains()).toEqual(clean));
});
afterAll(() => control.close());

const fork = (id: string, body?: object, query = "") =>
  control.ask(`POST /v1/sessions/${id}/fork${query}`, { body });
const get = async (id: string) => (await control.ask(`GET /v1/sessions/${id}`)).body;
const opOf = async (id: string) =>
  (await control.sql.query("select op from sessions where id = $1", [id])).rows[0].op;
const childrenOf = async (id: string): Promise<string[]> =>
  (await control.sql.query("select id from sessions where parent_session_id = $1", [id])).rows.map(
    (row) => row.id,
  );

/** Counts machines, snapshots and sessions. */
async function remains(): Promise<Record<string, number>> {
  const { rows } = await control.sql.query(
    "select count(*)::int as n from sessions where state <> 'destroyed'",
  );
  return { machines: control.node.machines.size, snapshots: control.node.snapshots.size, rows: rows[0].n };
}

test("children and parent are live when the call answers", async () => {
  const id = await control.createLive();
  const { status, body } = await fork(id, { count: 3 });
  expect(status).toBe(200);
  expect(body).toEqual({
    parent_session_id: id,
    children: [expect.any(String), expect.any(String), expect.any(String)],
  });
  expect(new Set(body.children).size).toBe(3);
  for (const child of body.children) {
    expect(await get(child)).toMatchObject({ state: "live", parent_session_id: id });
    expect(control.node.machines.get(`${child}-1`)).toMatchObject({
      state: "running",
      spec: { template: "base", size: "small", hostname: child, no_sudo: false },
    });
    expect(control.node.machines.get(`${child}-1`)?.spec).not.toHaveProperty("resume");
    expect((await control.exec(child)).status).toBe(200);
  }
  expect((await get(id)).state).toBe("live");
  expect(control.node.machines.get(`${id}-1`)?.state).toBe("running");
  await eventually(async () => expect([control.node.snapshots.size, await opOf(id)]).toEqual([0, null]));
});

test("a fork whose client disconnects is completed, with its children in list and event", async () => {
  const id = await control.createLive();
  const url = await control.app.server.listen({ host: "127.0.0.1", port: 0 });
  const leaves = new AbortController();
  const left = Promise.withResolvers<void>();
  control.node.onStart = async () => {
    leaves.abort();
    await left.promise;
  };
  const headers = { authorization: `Bearer ${control.key}` };
  const call = fetch(`${url}/v1/sessions/${id}/fork`, { method: "POST", headers, signal: leaves.signal });
  await expect(call).rejects.toThrow();
  left.resolve();
  await eventually(async () => {
    const { sessions } = (await control.ask("GET /v1/sessions?state=live")).body;
    expect(sessions).toHaveLength(2);
    expect(sessions[0]).toMatchObject({ parent_session_id: id, state: "live" });
  });
  const events = await control.sql.query("select data from events where type = 'session.forked'");
  expect(events.rows.at(-1).data.children).toEqual(await childrenOf(id));
});

test("all children are loaded from one instant", async () => {
  const id = await control.createLive();
  const captured: string[] = [];
  control.node.onSnapshot = (snapshotId) => void captured.push(snapshotId);
  const { body } = await fork(id, { count: 4 });
  expect(captured).toEqual([expect.stringMatching(/^frk_[a-z0-9]{21}$/)]);
  for (const child of body.children) {
    expect(control.node.machines.get(`${child}-1`)?.spec?.snapshot_id).toBe(captured[0]);
  }
});

test("one child is made without a count", async () => {
  const id = await control.createLive();
  for (const body of [undefined, {}, { count: null }]) {
    expect((await fork(id, body)).body.children).toHaveLength(1);
  }
});

test.each([
  [0, /^count: must be a whole number from 1 to 4, got 0$/],
  [-1, /^count: must be a whole number from 1 to 4/],
  [17, /^count: must be a whole number from 1 to 4, got 17$/],
  [1.5, /^count: must be a whole number from 1 to 4/],
  ["2", /^count: must be a whole number from 1 to 4/],
  [5, /^count: must be a whole number from 1 to 4, got 5$/],
])("a count of %j is refused before the session is looked up", async (count, message) => {
  for (const id of [randomId(), await control.create()]) {
    const answer = await fork(id, { count });
    expect([answer.status, answer.body.code]).toEqual([400, "validation"]);
    expect(answer.body.error).toMatch(message);
  }
});

test("children inherit settings, but not what only the parent may have", async () => {
  const id = await control.createLive({
    ...{ size: "medium", labels: { a: "b" }, env: { A: "1" }, no_sudo: true, command_capture: "full" },
    ...{ idle_timeout_ms: 60_000, max_lifetime_ms: 3_600_000, paused_ttl_ms: 5_000_000 },
    ...{ on_pty_detach: "keep_live", wake_on_http: false },
    ...{ name: "parent", external_id: "ext", destroy_on_completion: true },
  });
  const { children } = (await fork(id)).body;
  const child = await get(children[0]);
  expect(child).toMatchObject({
    ...{ size: "medium", labels: { a: "b" }, env: { A: "1" }, no_sudo: true },
    ...{ idle_timeout_ms: 60_000, max_lifetime_ms: 3_600_000, paused_ttl_ms: 5_000_000 },
    ...{ on_pty_detach: "keep_live", wake_on_http: false },
    project_id: (await get(id)).project_id,
  });
  for (const field of ["name", "external_id", "destroy_on_completion"]) {
    expect(child).not.toHaveProperty(field);
  }
  const { rows } = await control.sql.query("select command_capture from sessions where id = $1", [
    child.session_id,
  ]);
  expect(rows[0].command_capture).toBe("full");
});

test("children of a session from a checkpoint have only a parent as their origin", async () => {
  const id = await control.createLive();
  const chk = (await control.ask(`POST /v1/sessions/${id}/checkpoints`)).body.checkpoint_id;
  const started = await control.createLive({ from_checkpoint: chk });
  const child = await get((await fork(started)).body.children[0]);
  expect(child.parent_session_id).toBe(started);
  expect(child).not.toHaveProperty("from_checkpoint");
  await control.ask(`DELETE /v1/checkpoints/${chk}`);
});

test("children outlive their parent, and can be forked", async () => {
  const id = await control.createLive();
  const [child] = (await fork(id)).body.children;
  await control.ask(`DELETE /v1/sessions/${id}`);
  expect((await control.exec(child)).status).toBe(200);
  const [grandchild] = (await fork(child)).body.children;
  expect((await get(grandchild)).parent_session_id).toBe(child);
});

test("a paused parent stays paused", async () => {
  const id = await control.createLive();
  await control.ask(`POST /v1/sessions/${id}/pause`);
  const { rows } = await control.sql.query("select snapshot_id from sessions where id = $1", [id]);
  let source: unknown;
  control.node.onSnapshot = (_id, spec) => {
    source = spec;
  };
  const { status, body } = await fork(id, { count: 2 });
  expect([status, source]).toEqual([200, { snapshot_id: rows[0].snapshot_id }]);
  expect((await get(id)).state).toBe("paused");
  expect(await Promise.all(body.children.map(async (child: string) => (await get(child)).state))).toEqual([
    "live",
    "live",
  ]);
  await eventually(() =>
    expect([...control.node.machines.keys()].some((name) => name.startsWith(id))).toBe(false),
  );
});

test("ceilings count all children before anything is captured", async () => {
  const id = await control.createLive();
  for (let made = 0; made < 6; made++) await control.create();
  let captures = 0;
  control.node.onSnapshot = () => void captures++;
  const answer = await fork(id, { count: 4 });
  expect([answer.status, answer.body.code, answer.headers["retry-after"]]).toEqual([
    429,
    "account_concurrency_exceeded",
    "5",
  ]);
  expect(answer.body.error).toMatch(/has 7, and this asks for 4 more/);
  expect([captures, await childrenOf(id), await opOf(id)]).toEqual([0, [], null]);
  expect((await fork(id, { count: 3 })).status).toBe(200);
});

test("a key's ceiling counts as well", async () => {
  const { rows } = await control.sql.query("select org_id from api_keys limit 1");
  const key = await control.addKey({ orgId: rows[0].org_id, ceiling: 2 });
  const id = await control.createLive({}, key);
  const answer = await control.ask(`POST /v1/sessions/${id}/fork`, { key, body: { count: 2 } });
  expect([answer.status, answer.body.code]).toEqual([429, "key_concurrency_exceeded"]);
  expect((await control.ask(`POST /v1/sessions/${id}/fork`, { key, body: { count: 1 } })).status).toBe(200);
});

test.each([
  ["capture_failed", 503, "session_unavailable"],
  ["disk_pressure", 503, "node_disk_pressure"],
  ["internal", 500, "internal"],
] as const)("a capture that is refused with %s leaves no orphan", async (code, status, shown) => {
  const id = await control.createLive();
  const before = await remains();
  control.node.onSnapshot = () => {
    throw new Refusal(code);
  };
  const answer = await fork(id, { count: 3 });
  expect([answer.status, answer.body.code]).toEqual([status, shown]);
  expect([await remains(), await opOf(id), await childrenOf(id)]).toEqual([before, null, []]);
  expect((await get(id)).state).toBe("live");
});

test.each([
  ["disk_pressure", 503, "node_disk_pressure", "30"],
  ["no_capacity", 503, "unavailable", "5"],
  ["agent_unavailable", 503, "session_unavailable", "2"],
  ["snapshot_damaged", 500, "internal", undefined],
  ["guest_unfit", 409, "conflict", undefined],
] as const)("one child that is refused with %s discards all", async (code, status, shown, retry) => {
  const id = await control.createLive();
  const before = await remains();
  let starts = 0;
  control.node.onStart = () => {
    if (++starts === 3) throw new Refusal(code);
  };
  const answer = await fork(id, { count: 4 });
  expect([answer.status, answer.body.code, answer.headers["retry-after"]]).toEqual([status, shown, retry]);
  expect([await remains(), await opOf(id), await childrenOf(id)]).toEqual([before, null, []]);
  const { body } = await control.ask("GET /v1/sessions?state=ended&limit=500");
  expect(body.sessions.filter((row: { end_reason: string }) => row.end_reason === "error")).toEqual([]);
  expect((await fork(id, { count: 4 })).status).toBe(200);
});

test("a node that is away is answered, and no orphan remains", async () => {
  const id = await control.createLive();
  const before = await remains();
  await control.node.goDown();
  const answer = await fork(id, { count: 2 });
  expect([answer.status, answer.body.code]).toEqual([503, "session_node_unavailable"]);
  expect([await opOf(id), (await get(id)).state]).toEqual([null, "live"]);
  await control.node.listen();
  await eventually(async () => expect(await remains()).toEqual(before));
  expect((await fork(id)).status).toBe(200);
});

test("a destroy of the parent during the request ends it, and no child remains", async () => {
  const id = await control.createLive();
  const { promise, resolve } = Promise.withResolvers<void>();
  control.node.onStart = () => promise;
  const asked = fork(id, { count: 2 });
  await eventually(async () => expect(control.node.snapshots.size).toBe(1));
  expect((await control.ask(`DELETE /v1/sessions/${id}`)).status).toBe(204);
  resolve();
  const answer = await asked;
  expect([answer.status, answer.body.code]).toEqual([410, "session_ended"]);
  await eventually(async () => expect(await remains()).toEqual(clean));
});

test("a destroy of a child during the request discards all", async () => {
  const id = await control.createLive();
  const before = await remains();
  const { promise, resolve } = Promise.withResolvers<void>();
  control.node.onStart = () => promise;
  const asked = fork(id, { count: 2 });
  const [child] = await eventually(async () => {
    const children = await childrenOf(id);
    expect(children).toHaveLength(2);
    return children;
  });
  expect((await get(child as string)).state).toBe("creating");
  expect((await control.ask(`DELETE /v1/sessions/${child}`)).status).toBe(204);
  resolve();
  const answer = await asked;
  expect([answer.status, answer.body.code]).toEqual([410, "session_ended"]);
  await eventually(async () => expect(await remains()).toEqual(before));
  expect((await get(id)).state).toBe("live");
});

test("children whose leases lapsed are discarded, and the caller may try again", async () => {
  const own = await startControl({ sweeps: false });
  try {
    const id = await own.createLive();
    const started = Promise.withResolvers<void>();
    own.node.onStart = () => started.promise;
    const asked = own.ask(`POST /v1/sessions/${id}/fork`, { body: { count: 2 } });
    await eventually(async () => {
      // As if the database had been away. The next renewal does not renew lapsed leases.
      const { rowCount } = await own.sql.query(
        "update sessions set destroy_after = now() - interval '1 second' where parent_session_id = $1",
        [id],
      );
      expect(rowCount).toBe(2);
    });
    started.resolve();
    const answer = await asked;
    expect([answer.status, answer.body.code]).toEqual([503, "unavailable"]);
    await eventually(() => expect([...own.node.machines.keys()]).toEqual([`${id}-1`]));
  } finally {
    await own.close();
  }
});

test("a clock that is behind the database's makes no lease lapse", async () => {
  const id = await control.createLive();
  vi.useFakeTimers({ toFake: ["Date"], now: Date.now() - 60_000 });
  try {
    expect((await fork(id, { count: 2 })).status).toBe(200);
  } finally {
    vi.useRealTimers();
  }
});

test("commands keep running during a fork, other verbs wait", async () => {
  const id = await control.createLive();
  const { promise, resolve } = Promise.withResolvers<void>();
  control.node.onSnapshot = () => promise;
  const asked = fork(id);
  await eventually(async () => expect(await opOf(id)).toBe("fork"));
  expect((await control.exec(id)).status).toBe(200);
  const second = fork(id);
  resolve();
  expect([(await asked).status, (await second).status]).toEqual([200, 200]);
});

test("a creating, failed, expired or destroyed session cannot be forked", async () => {
  control.node.onStart = () => {
    throw new Refusal("no_capacity");
  };
  const id = await control.create();
  const early = await fork(id);
  expect([early.status, early.body.code]).toEqual([409, "session_not_live"]);
  control.node.onStart = () => {
    throw new Refusal("internal");
  };
  await control.until(id, "failed");
  const failed = await fork(id);
  expect([failed.status, failed.body.code]).toEqual([409, "conflict"]);
  control.node.onStart = () => {};
  const other = await control.createLive();
  await control.ask(`POST /v1/sessions/${other}/pause`);
  await control.sql.query("update sessions set state = 'lifetime_expired' where id = $1", [other]);
  const expired = await fork(other);
  expect([expired.status, expired.body.code]).toEqual([410, "session_ended"]);
  expect((await fork(randomId())).status).toBe(404);
});

test("the timing is answered on request", async () => {
  const id = await control.createLive();
  const { body } = await fork(id, { count: 2 }, "?timing=true");
  expect(body.timing).toEqual({
    capture: expect.any(Number),
    stopped: 6,
    start: expect.any(Number),
    total: expect.any(Number),
  });
  const child = await control.ask(`GET /v1/sessions/${body.children[0]}?timing=true`);
  expect(child.body.timing).toMatchObject({ queue: 1, disk: 2, load: 3, handshake: 4 });
});

test("the operator's cap applies, and is in the error", async () => {
  const wide = await startControl({ forkChildren: 16 });
  try {
    await wide.sql.query("update orgs set concurrent_sessions = 20");
    const id = await wide.createLive();
    expect((await wide.ask("GET /v1/org")).body.limits.fork_children).toBe(16);
    const { status, body } = await wide.ask(`POST /v1/sessions/${id}/fork`, { body: { count: 16 } });
    expect([status, body.children?.length]).toEqual([200, 16]);
  } finally {
    await wide.close();
  }
});

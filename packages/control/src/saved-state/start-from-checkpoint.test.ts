import { Refusal } from "@vivarium/contract/test-support/node";
import { randomId } from "@vivarium/kit/id";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";

let control: Control;
let parent: string;
let chk: string;
beforeAll(async () => {
  control = await startControl();
  parent = await control.createLive({
    ...{ size: "medium", env: { A: "1", B: "2" }, labels: { a: "b" }, no_sudo: true, name: "parent" },
    ...{ external_id: "ext", idle_timeout_ms: 60_000, destroy_on_completion: true },
  });
  chk = (await control.ask(`POST /v1/sessions/${parent}/checkpoints`)).body.checkpoint_id;
  await control.ask(`DELETE /v1/sessions/${parent}`);
});
afterEach(async () => {
  control.node.onStart = () => {};
  await control.destroyAll();
  await eventually(() => expect(control.node.machines.size).toBe(0));
});
afterAll(() => control.close());

const start = (body?: object, query = "") =>
  control.ask(`POST /v1/checkpoints/${chk}/sessions${query}`, { body });
const create = (body: object) =>
  control.ask("POST /v1/sessions", { body: { from_checkpoint: chk, ...body } });
const specOf = (id: string) => control.node.machines.get(`${id}-1`)?.spec;

test("a session is live when the call answers, with the settings of the checkpoint", async () => {
  const { status, body } = await start();
  expect(status).toBe(200);
  expect(body).toMatchObject({
    state: "live",
    size: "medium",
    vcpus: 2,
    env: { A: "1", B: "2" },
    no_sudo: true,
    egress: { mode: "allow", allow: [] },
    on_pty_detach: "pause",
    from_checkpoint: chk,
  });
  for (const field of ["name", "labels", "external_id", "idle_timeout_ms", "destroy_on_completion"]) {
    expect(body).not.toHaveProperty(field);
  }
  expect(specOf(body.session_id)).toEqual({
    network: { generation: 1, egress: { mode: "allow", allow: [] }, exposed: [] },
    template: "base",
    size: "medium",
    hostname: body.session_id,
    no_sudo: true,
    snapshot_id: chk,
  });
  expect((await control.exec(body.session_id)).status).toBe(200);
});

test("settings of the request are added, or replace those of the checkpoint", async () => {
  const settings = {
    ...{ name: "child", labels: { c: "d" }, external_id: "x", wake_on_http: false },
    ...{ max_lifetime_ms: 60_000, idle_timeout_ms: 30_000, paused_ttl_ms: 40_000, on_pty_detach: "destroy" },
  };
  const { body } = await start({ ...settings, env: { B: "3", C: "4" } });
  expect(body).toMatchObject({ ...settings, env: { A: "1", B: "3", C: "4" } });
});

describe.each([
  [
    "a start",
    async (from: string, body: object) => control.ask(`POST /v1/checkpoints/${from}/sessions`, { body }),
  ],
  [
    "a create",
    async (from: string, body: object) => {
      const id = await control.createLive({ from_checkpoint: from, ...body });
      return await control.ask(`GET /v1/sessions/${id}`);
    },
  ],
])("%s", (_title, startFrom) => {
  test("can add no_sudo, but never remove it", async () => {
    const soft = await control.createLive();
    const made = await control.ask(`POST /v1/sessions/${soft}/checkpoints`);
    for (const [from, asked, given] of [
      [made.body.checkpoint_id, undefined, false],
      [made.body.checkpoint_id, false, false],
      [made.body.checkpoint_id, true, true],
      [chk, false, true],
    ] as const) {
      const { body } = await startFrom(from, { no_sudo: asked });
      expect([body.no_sudo, specOf(body.session_id)?.no_sudo]).toEqual([given, given]);
    }
  });

  test("may set destroy_on_completion", async () => {
    const { body } = await startFrom(chk, { destroy_on_completion: true });
    expect(body.destroy_on_completion).toBe(true);
    expect((await control.exec(body.session_id)).status).toBe(200);
    const read = () => control.ask(`GET /v1/sessions/${body.session_id}`);
    await eventually(async () => expect((await read()).status).toBe(404));
  });
});

test("two starts from one checkpoint are two sessions", async () => {
  const [one, other] = await Promise.all([start(), start()]);
  expect(one.body.session_id).not.toBe(other.body.session_id);
  expect([one.body.state, other.body.state]).toEqual(["live", "live"]);
});

test("a create from a state of another CPU fails with a reason that names both", async () => {
  const why = "the saved state does not continue on this host: it was made with A; this host's CPU is B";
  control.node.onStart = () => {
    throw new Refusal("snapshot_unfit", why);
  };
  const { body } = await create({});
  const failed = await control.until(body.session_id, "failed");
  control.node.onStart = () => {};
  expect(failed.body.status_reason).toBe(why);
});

test("the timing is answered on request", async () => {
  const { body } = await start({}, "?timing=true");
  expect(body.timing).toMatchObject({ queue: 1, disk: 2, load: 3, handshake: 4 });
});

test.each([
  [{ name: "" }, 400, /^name: must be 1 to 128/],
  [{ max_lifetime_ms: 1000, paused_ttl_ms: -1 }, 400, /^paused_ttl_ms: must not be negative/],
  [{ env: { A: "x".repeat(65_536) } }, 400, /^env: must be at most 65536 bytes/],
  [
    { env: { C: "x".repeat(65_533) } },
    400,
    /^env: must be at most 65536 bytes together with the checkpoint's/,
  ],
  [{ no_sudo: "true" }, 400, /^no_sudo: must be a boolean/],
  [{ destroy_on_completion: 1 }, 400, /^destroy_on_completion: must be a boolean/],
  [{ egress: { mode: "alow" } }, 400, /^egress\.mode: must be one of/],
  [{ connections: [{}] }, 400, /^connections\[0\]\.name: must be a string/],
  [{ project_id: "prj_x" }, 404, /^project_id: no project/],
])("%j is refused", async (body, status, message) => {
  const answer = await start(body);
  expect(answer.status).toBe(status);
  expect(answer.body.error).toMatch(message);
  expect((await control.ask("GET /v1/sessions")).body.sessions).toEqual([]);
});

test("a name that is taken is a conflict", async () => {
  await control.create({ name: "taken" });
  // The error about secrets comes after this one.
  for (const body of [{ name: "taken" }, { name: "taken", secrets: { S: "x" } }]) {
    const answer = await start(body);
    expect([answer.status, answer.body.code]).toEqual([409, "conflict"]);
  }
});

test("a start takes a slot", async () => {
  await Promise.all(Array.from({ length: 10 }, () => control.create()));
  const answer = await start();
  expect([answer.status, answer.body.code]).toEqual([429, "account_concurrency_exceeded"]);
});

test.each([
  ["disk_pressure", 503, "node_disk_pressure"],
  ["no_capacity", 503, "unavailable"],
  ["agent_unavailable", 503, "session_unavailable"],
  ["snapshot_damaged", 500, "internal"],
  ["snapshot_not_found", 500, "internal"],
  ["guest_unfit", 409, "conflict"],
] as const)("a refusal of the node with %s leaves no orphan", async (code, status, shown) => {
  control.node.onStart = () => {
    throw new Refusal(code);
  };
  const answer = await start({ name: "gone" });
  expect([answer.status, answer.body.code]).toEqual([status, shown]);
  expect((await control.ask("GET /v1/sessions")).body.sessions).toEqual([]);
  expect(control.node.machines.size).toBe(0);
  const { rows } = await control.sql.query("select from sessions where name = 'gone'");
  expect(rows).toEqual([]);
  expect(control.node.snapshots.has(chk)).toBe(true);
});

test("a create from a checkpoint whose guest does not come back fails with what to do", async () => {
  control.node.onStart = () => {
    throw new Refusal("guest_unfit");
  };
  const id = await control.create({ from_checkpoint: chk });
  const { body } = await control.until(id, "failed");
  expect(body.status_reason).toBe(
    "the guest in the saved state that the session starts from does not come back; choose another one",
  );
});

test("a node that is away is answered, and no orphan remains", async () => {
  await control.node.goDown();
  const answer = await start();
  expect([answer.status, answer.body.code]).toEqual([503, "session_node_unavailable"]);
  await control.node.listen();
  await eventually(async () => expect((await control.ask("GET /v1/org")).body.capacity.running).toBe(0));
});

test("a broken connection to the node is answered as such, and no orphan remains", async () => {
  let down: Promise<void> | undefined;
  control.node.onStart = () => {
    down ??= control.node.goDown();
    return new Promise(() => {});
  };
  const answer = await start();
  expect([answer.status, answer.body.code, answer.headers["retry-after"]]).toEqual([502, "bad_gateway", "2"]);
  await down;
  await control.node.listen();
  await eventually(async () => expect((await control.ask("GET /v1/org")).body.capacity.running).toBe(0));
});

test("a session that is destroyed while it starts ends the request", async () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  control.node.onStart = () => promise;
  const asked = start();
  const id = await eventually(async () => {
    const { body } = await control.ask("GET /v1/sessions?state=creating");
    expect(body.sessions).toHaveLength(1);
    return body.sessions[0].session_id;
  });
  expect((await control.ask(`DELETE /v1/sessions/${id}`)).status).toBe(204);
  resolve();
  expect((await asked).status).toBe(410);
  await eventually(() => expect(control.node.machines.size).toBe(0));
});

/** Takes longer than the lease, which must have been renewed. */
test("a slow start is not discarded", async () => {
  control.node.onStart = () => new Promise((resolve) => setTimeout(resolve, 6_500));
  expect((await start()).body.state).toBe("live");
});

test("a start whose process died is discarded, because no caller knows of it", async () => {
  const { promise } = Promise.withResolvers<void>();
  control.node.onStart = () => promise;
  const id = randomId();
  await control.sql.query(
    `insert into sessions (id, org_id, origin, state, size, template, egress, no_sudo, on_pty_detach, paused_ttl_ms,
      destroy_on_completion, command_capture, wake_on_http, origin_snapshot_id, provision_claimed_until, destroy_after)
     select $1, org_id, 'api', 'creating', 'medium', 'base', '{"mode":"allow","allow":[]}', false, 'pause', 1, false,
      'hash', true, $2, now() + interval '5 minutes', now() - interval '1 second' from api_keys order by created_at limit 1`,
    [id, chk],
  );
  await eventually(async () => expect((await control.ask(`GET /v1/sessions/${id}`)).status).toBe(404));
});

describe("create with from_checkpoint", () => {
  test("answers at once and becomes live from the checkpoint", async () => {
    const { status, body } = await create({ env: { B: "3" } });
    expect([status, body.state]).toEqual([200, "creating"]);
    expect(body).toMatchObject({ size: "medium", env: { A: "1", B: "3" }, no_sudo: true });
    await control.until(body.session_id, "live");
    expect(specOf(body.session_id)?.snapshot_id).toBe(chk);
  });

  test("takes the size of the checkpoint, and no other", async () => {
    expect((await create({ size: "medium" })).status).toBe(200);
    const answer = await create({ size: "large" });
    expect([answer.status, answer.body.code]).toEqual([400, "validation"]);
    expect(answer.body.error).toMatch(/^size: must be "medium", the size of the checkpoint/);
  });

  test("cannot be combined with a template", async () => {
    const answer = await create({ template: "base" });
    expect([answer.status, answer.body.code]).toEqual([400, "validation"]);
    expect((await create({ template: "" })).status).toBe(200);
  });

  test("answers 404 for an unknown or foreign checkpoint", async () => {
    const key = await control.addKey();
    const answers = [
      await control.ask("POST /v1/sessions", { key, body: { from_checkpoint: chk } }),
      await create({ from_checkpoint: `chk_${randomId()}` }),
      await create({ from_checkpoint: "x" }),
      await create({ from_checkpoint: "" }),
    ];
    for (const { status, body } of answers) {
      expect([status, body.code]).toEqual([404, "not_found"]);
      expect(body.error).toMatch(/^from_checkpoint: no checkpoint/);
    }
  });

  test("is replayed by its Idempotency-Key, even after the checkpoint is deleted", async () => {
    const other = await control.createLive();
    const made = await control.ask(`POST /v1/sessions/${other}/checkpoints`);
    const ask = () =>
      control.ask("POST /v1/sessions", {
        body: { from_checkpoint: made.body.checkpoint_id },
        headers: { "idempotency-key": "once" },
      });
    const first = await ask();
    await control.until(first.body.session_id, "live");
    await control.ask(`DELETE /v1/checkpoints/${made.body.checkpoint_id}`);
    const again = await ask();
    expect([again.status, again.body.session_id]).toEqual([200, first.body.session_id]);
  });

  test("completes although the checkpoint is deleted while it starts", async () => {
    const other = await control.createLive();
    const made = await control.ask(`POST /v1/sessions/${other}/checkpoints`);
    const snapshot = made.body.checkpoint_id;
    const { promise, resolve } = Promise.withResolvers<void>();
    control.node.onStart = () => promise;
    const id = await control.create({ from_checkpoint: snapshot });
    expect((await control.ask(`DELETE /v1/checkpoints/${snapshot}`)).status).toBe(204);
    expect(control.node.snapshots.has(snapshot)).toBe(true);
    resolve();
    await control.until(id, "live");
  });
});

import { Refusal } from "@vivarium/contract/test-support/node";
import { randomId } from "@vivarium/kit/id";
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";

let control: Control;
beforeAll(async () => {
  control = await startControl();
});
afterEach(async () => {
  control.node.onStart = () => {};
  control.node.onDelete = () => {};
  await control.destroyAll();
});
afterAll(() => control.close());

const get = async (id: string) => (await control.ask(`GET /v1/sessions/${id}`)).body;
const destroy = (id: string, query = "") => control.ask(`DELETE /v1/sessions/${id}${query}`);
/** Blocks starts on the node until the returned function is called. */
function holdStarts(): () => void {
  const { promise, resolve } = Promise.withResolvers<void>();
  control.node.onStart = () => promise;
  return resolve;
}

test("a session becomes live with a machine of its own", async () => {
  const id = await control.createLive({ no_sudo: true, size: "large" });
  const record = await get(id);
  expect(record).toMatchObject({
    state: "live",
    max_active_window_ms: 86_400_000,
    resumed_at: record.created_at,
  });
  expect(Date.parse(record.active_since)).toBeGreaterThanOrEqual(Date.parse(record.created_at));
  expect(record).not.toHaveProperty("status_detail");
  expect(control.node.machines.get(`${id}-1`)?.spec).toEqual({
    network: { generation: 1, egress: { mode: "allow", allow: [] }, exposed: [] },
    template: "base",
    size: "large",
    hostname: id,
    no_sudo: true,
  });
});

test("destroying a live session removes its machine before the answer, and leaves history", async () => {
  const id = await control.createLive();
  const answer = await destroy(id);
  expect([answer.status, answer.text, answer.headers["x-request-id"]]).toEqual([204, "", expect.any(String)]);
  expect(control.node.machines.has(`${id}-1`)).toBe(false);
  expect((await control.ask(`GET /v1/sessions/${id}`)).status).toBe(404);
  const again = await destroy(id);
  expect([again.status, again.body.code]).toEqual([404, "not_found"]);
});

test("a reason other than the two is refused and nothing is destroyed", async () => {
  const id = await control.createLive();
  const answer = await destroy(id, "?reason=error");
  expect([answer.status, answer.body.error]).toEqual([400, expect.stringMatching(/^reason: must be one of/)]);
  expect((await get(id)).state).toBe("live");
});

test("destroying a session that is being created cancels its provisioning", async () => {
  const continueStarts = holdStarts();
  const id = await control.create();
  expect((await destroy(id)).status).toBe(204);
  continueStarts();
  await eventually(() =>
    expect([...control.node.machines.keys()].filter((name) => name.startsWith(id))).toEqual([]),
  );
  expect((await control.ask(`GET /v1/sessions/${id}`)).status).toBe(404);
});

test("only one of many simultaneous destroys succeeds", async () => {
  const id = await control.createLive();
  const answers = await Promise.all(Array.from({ length: 6 }, () => destroy(id)));
  expect(answers.map(({ status }) => status).sort()).toEqual([204, 404, 404, 404, 404, 404]);
});

test.each([
  ["disk_pressure", "the node has too little free disk for another machine"],
  ["template_unavailable", "the node has no baseline for this template and size"],
  ["internal", "the node could not start the machine"],
] as const)("a node that refuses with %s makes the session failed, with a reason", async (code, reason) => {
  control.node.onStart = () => {
    throw new Refusal(code, "/secret/path: details");
  };
  const id = await control.create();
  const { body } = await control.until(id, "failed");
  expect(body.status_reason).toBe(reason);
  expect((await control.ask("GET /v1/org")).body.capacity.running).toBe(0);
  const exec = await control.exec(id);
  expect([exec.status, exec.body.code]).toEqual([409, "conflict"]);
  expect((await destroy(id)).status).toBe(204);
});

test("a node without capacity is asked again until it has some", async () => {
  control.node.onStart = () => {
    throw new Refusal("no_capacity");
  };
  const id = await control.create();
  await eventually(async () => expect((await get(id)).status_detail).toBe("waiting_for_capacity"));
  control.node.onStart = () => {};
  await control.until(id, "live");
});

test("the timing of a create is answered on request", async () => {
  const continueStarts = holdStarts();
  const early = await control.ask("POST /v1/sessions?timing=true", {
    headers: { "idempotency-key": "timing" },
  });
  expect([early.status, early.body.timing]).toEqual([200, undefined]);
  const id = early.body.session_id as string;
  continueStarts();
  expect((await control.until(id, "live")).body).not.toHaveProperty("timing");
  const { timing } = (await control.ask(`GET /v1/sessions/${id}?timing=true`)).body;
  expect(timing).toEqual({
    place: expect.any(Number),
    queue: 1,
    disk: 2,
    load: 3,
    handshake: 4,
    total: expect.any(Number),
  });
  expect(timing.place).toBeGreaterThanOrEqual(0);
  expect(timing.total).toBeGreaterThanOrEqual(timing.place);
  const replay = await control.ask("POST /v1/sessions?timing=1", {
    headers: { "idempotency-key": "timing" },
  });
  expect([replay.headers["idempotent-replayed"], replay.body.timing]).toEqual(["true", timing]);
  for (const query of ["timing=yes", "timing=true&timing=true"]) {
    const answer = await control.ask(`GET /v1/sessions/${id}?${query}`);
    expect([answer.status, answer.body.error]).toEqual([
      400,
      expect.stringMatching(/^timing: must be one of/),
    ]);
  }
});

/** The row of a process that died while it provisioned. */
async function insertOrphan(age: string): Promise<string> {
  const id = randomId();
  await control.sql.query(
    `insert into sessions (id, org_id, origin, state, size, template, egress, no_sudo, on_pty_detach, paused_ttl_ms,
      destroy_on_completion, command_capture, wake_on_http, provision_claimed_until, created_at)
     select $1, org_id, 'api', 'creating', 'small', 'base', '{"mode":"allow","allow":[]}', false, 'pause', 1, false,
      'hash', true, now() - interval '1 second', now() - $2::interval from api_keys order by created_at limit 1`,
    [id, age],
  );
  return id;
}

test("a create survives the death of its process", async () => {
  const id = await insertOrphan("1 minute");
  await control.until(id, "live");
  // No node was asked during that time.
  const { timing } = (await control.ask(`GET /v1/sessions/${id}?timing=true`)).body;
  expect(timing.place).toBeGreaterThanOrEqual(60_000);
});

test("the total time of a create includes waiting for the lock of its organisation", async () => {
  const other = await control.sql.connect();
  await other.query("begin");
  await other.query("select 1 from orgs for update");
  const asked = control.ask("POST /v1/sessions", {});
  await new Promise((resolve) => setTimeout(resolve, 600));
  await other.query("rollback");
  other.release();
  const { session_id: id } = (await asked).body;
  await control.until(id, "live");
  const { timing } = (await control.ask(`GET /v1/sessions/${id}?timing=true`)).body;
  expect(timing.total).toBeGreaterThanOrEqual(500);
});

test("a create works although the database's clock is an hour behind", async () => {
  vi.useFakeTimers({ toFake: ["Date"], now: Date.now() + 3_600_000 });
  try {
    const id = await control.createLive();
    const { timing } = (await control.ask(`GET /v1/sessions/${id}?timing=true`)).body;
    expect(timing.total).toBeLessThan(60_000);
  } finally {
    vi.useRealTimers();
  }
});

test("provisioning that takes more than five minutes fails", async () => {
  holdStarts();
  const id = await insertOrphan("4 minutes 59 seconds");
  const { body } = await control.until(id, "failed");
  expect(body.status_reason).toBe("the machine was not ready within 5 minutes");
  // Timers and dates have whole milliseconds.
  const { rows } = await control.sql.query(
    "select state_changed_at - created_at > interval '299.99 seconds' as not_before from sessions where id = $1",
    [id],
  );
  expect(rows[0].not_before).toBe(true);
});

test("when a machine dies, its session fails with the node's reason, and the machine is removed", async () => {
  const id = await control.createLive();
  control.node.endMachine(`${id}-1`, "QEMU was killed\nby signal 9");
  const { body } = await control.until(id, "failed");
  expect(body.status_reason).toBe("the machine ended: QEMU was killed by signal 9");
  await eventually(() => expect(control.node.machines.has(`${id}-1`)).toBe(false));
  expect((await destroy(id)).status).toBe(204);
});

test("when the host went down under a live session, it fails with host_restart, and names what can be gone on from", async () => {
  const [bare, saved, paused] = [
    await control.createLive(),
    await control.createLive(),
    await control.createLive(),
  ];
  const checkpoints = [1, 2].map(() => control.ask(`POST /v1/sessions/${saved}/checkpoints`));
  await Promise.all(checkpoints);
  const { body: newest } = await control.ask(`POST /v1/sessions/${saved}/checkpoints`);
  await control.ask(`POST /v1/sessions/${paused}/pause`);
  control.node.restartHost();
  const what = "host_restart: the host went down while the session was live";
  expect((await control.until(bare, "failed")).body.status_reason).toBe(`${what}; it has no checkpoint`);
  expect((await control.until(saved, "failed")).body.status_reason).toBe(
    `${what}; start a session from its newest checkpoint, ${newest.checkpoint_id}`,
  );
  expect((await get(paused)).state).toBe("paused");
  const again = await control.ask(`POST /v1/checkpoints/${newest.checkpoint_id}/sessions`, { body: {} });
  await control.until(again.body.session_id, "live");
});

test("when the host went down before a session was live, it gets another machine", async () => {
  await control.node.goDown();
  const id = await control.create();
  control.node.addMachine(`${id}-1`);
  control.node.restartHost();
  await control.node.listen();
  await control.until(id, "live");
  expect((await control.exec(id)).status).toBe(200);
});

test("when a machine vanishes, its session fails", async () => {
  const id = await control.createLive();
  control.node.machines.delete(`${id}-1`);
  expect((await control.until(id, "failed")).body.status_reason).toBe("the machine is gone from its node");
});

test("a node that does not answer does not fail its sessions, and a destroy waits for it", async () => {
  const kept = await control.createLive();
  const dropped = await control.createLive();
  await control.node.goDown();
  const exec = await control.exec(kept);
  expect([exec.status, exec.body.code, exec.headers["retry-after"]]).toEqual([
    503,
    "session_node_unavailable",
    "5",
  ]);
  const destroyed = destroy(dropped);
  const waiting = await control.create();
  await new Promise((resolve) => setTimeout(resolve, 300));
  expect((await get(kept)).state).toBe("live");
  expect((await get(waiting)).state).toBe("creating");
  expect(control.node.machines.has(`${dropped}-1`)).toBe(true);
  await control.node.listen();
  expect((await destroyed).status).toBe(204);
  expect(control.node.machines.has(`${dropped}-1`)).toBe(false);
  expect((await control.exec(kept)).status).toBe(200);
  await control.until(waiting, "live");
});

test("a destroy whose node stays away answers after some seconds, and is completed later", async () => {
  const id = await control.createLive();
  await control.node.goDown();
  const answer = destroy(id);
  await eventually(async () => expect((await control.ask(`GET /v1/sessions/${id}`)).status).toBe(404));
  expect((await answer).status).toBe(204);
  expect(control.node.machines.has(`${id}-1`)).toBe(true);
  await control.node.listen();
  await eventually(() => expect(control.node.machines.has(`${id}-1`)).toBe(false));
});

test("machines of destroyed sessions are removed at once, unknown ones after a minute", async () => {
  const id = await control.createLive();
  await destroy(id);
  const unknown = `${randomId()}-1`;
  control.node.addMachine(`${id}-1`);
  control.node.addMachine(unknown);
  await eventually(() => expect(control.node.machines.has(`${id}-1`)).toBe(false));
  expect(control.node.machines.has(unknown)).toBe(true);
  control.node.machines.delete(unknown);
});

test("a machine of an older incarnation is removed, the current one stays", async () => {
  const id = await control.createLive();
  control.node.addMachine(`${id}-2`);
  await eventually(() => expect(control.node.machines.has(`${id}-2`)).toBe(false));
  expect(control.node.machines.has(`${id}-1`)).toBe(true);
});

test("a failed session is destroyed after a day, as an error", async () => {
  control.node.onStart = () => {
    throw new Refusal("internal");
  };
  const id = await control.create();
  await control.until(id, "failed");
  await control.sql.query(
    "update sessions set state_changed_at = now() - interval '25 hours' where id = $1",
    [id],
  );
  await eventually(async () => expect((await control.ask(`GET /v1/sessions/${id}`)).status).toBe(404));
  const { body } = await control.ask("GET /v1/sessions?state=ended&limit=1");
  expect(body.sessions[0]).toMatchObject({ session_id: id, end_reason: "error" });
});

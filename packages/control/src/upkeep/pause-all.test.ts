/** The host goes down in order: every live session is paused, nothing is started, and all of them wake afterwards. */
import { Refusal } from "@vivarium/contract/test-support/node";
import { afterEach, beforeEach, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { silentLog } from "../../test-support/database.ts";
import { createApp } from "../app.ts";

const NEVER = new AbortController().signal;

let control: Control;
beforeEach(async () => {
  control = await startControl();
});
afterEach(() => control.close());

const stateOf = async (id: string) => (await control.ask(`GET /v1/sessions/${id}`)).body.state;
const sessionOf = (machineId: string) => machineId.split("-", 1)[0] ?? "";

/** Counts the captures of each session, and how many were in flight at once. */
function watchCaptures() {
  const seen = { captures: [] as string[], most: 0 };
  let inFlight = 0;
  control.node.onSnapshot = async (_id, spec) => {
    if (!("machine_id" in spec)) return;
    seen.captures.push(sessionOf(spec.machine_id));
    seen.most = Math.max(seen.most, ++inFlight);
    await new Promise((resolve) => setTimeout(resolve, 30));
    inFlight--;
  };
  return seen;
}

test("every live session is paused once, a few at a time, and wakes by its next use after the start", async () => {
  const ids = await Promise.all(Array.from({ length: 9 }, () => control.createLive()));
  const seen = watchCaptures();
  expect(await control.app.pauseAll(NEVER)).toEqual({ paused: 9, left: 0 });
  expect(seen.captures.toSorted()).toEqual(ids.toSorted());
  expect(seen.most).toBeGreaterThan(1);
  expect(seen.most).toBeLessThanOrEqual(4);
  for (const id of ids) expect(await stateOf(id)).toBe("paused");
  const { rows } = await control.sql.query(
    "select data->>'reason' as reason, count(*)::int from events where type = 'session.paused' group by 1",
  );
  expect(rows).toEqual([{ reason: "host_shutdown", count: 9 }]);

  await eventually(() => expect(control.node.machines.size).toBe(0));
  const after = await createApp(control.settings, silentLog);
  try {
    after.startSweeps();
    const answer = await after.server.inject({
      method: "POST",
      url: `/v1/sessions/${ids[0]}/exec`,
      headers: { authorization: `Bearer ${control.key}` },
      payload: JSON.stringify({ command: ["true"] }),
    });
    expect([answer.statusCode, await stateOf(ids[0] ?? "")]).toEqual([200, "live"]);
  } finally {
    await after.close();
  }
});

test("nothing is started meanwhile, and reading and destroying still work", async () => {
  const live = await control.createLive();
  const paused = await control.createLive();
  await control.ask(`POST /v1/sessions/${paused}/pause`);
  const checkpoint = await control.ask(`POST /v1/sessions/${live}/checkpoints`);
  await control.app.pauseAll(NEVER);
  const machines = control.node.machines.size;
  for (const [call, body] of [
    ["POST /v1/sessions", {}],
    ["POST /v1/sessions/exec", { language: "python", code: "1" }],
    [`POST /v1/sessions/${paused}/exec`, { command: ["true"] }],
    [`POST /v1/sessions/${paused}/resume`, undefined],
    [`POST /v1/sessions/${paused}/fork`, {}],
    [`POST /v1/sessions/${live}/restore`, { checkpoint_id: checkpoint.body.checkpoint_id }],
    [`POST /v1/checkpoints/${checkpoint.body.checkpoint_id}/sessions`, {}],
  ] as const) {
    const answer = await control.ask(call, { body });
    expect([call, answer.status, answer.body.code, answer.headers["retry-after"]]).toEqual([
      call,
      503,
      "unavailable",
      "30",
    ]);
  }
  expect(control.node.machines.size).toBeLessThanOrEqual(machines);
  expect(await stateOf(live)).toBe("paused");
  expect((await control.ask(`DELETE /v1/sessions/${live}`)).status).toBe(204);
});

test("a session that cannot be paused is tried three times, and holds up no other", async () => {
  const stuck = await control.createLive();
  const ids = await Promise.all(Array.from({ length: 4 }, () => control.createLive()));
  let attempts = 0;
  control.node.onSnapshot = (_id, spec) => {
    if (!("machine_id" in spec) || sessionOf(spec.machine_id) !== stuck) return;
    attempts++;
    throw new Refusal("capture_failed", "no");
  };
  expect(await control.app.pauseAll(NEVER)).toEqual({ paused: 4, left: 1 });
  expect([attempts, await stateOf(stuck)]).toEqual([3, "live"]);
  for (const id of ids) expect(await stateOf(id)).toBe("paused");
});

test("a session that is still being created is paused once it is live", async () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  control.node.onStart = () => promise;
  const id = await control.create();
  await eventually(() => expect(control.node.starting.size).toBe(1));
  const done = control.app.pauseAll(NEVER);
  await new Promise((later) => setTimeout(later, 100));
  expect(await stateOf(id)).toBe("creating");
  resolve();
  expect(await done).toEqual({ paused: 1, left: 0 });
  expect(await stateOf(id)).toBe("paused");
});

test("a scheduled wake that comes meanwhile is carried out by the next start, however late that is", async () => {
  const id = await control.createLive();
  // Both pauses are over by then, on a busy host too.
  const wakeAt = new Date(Date.now() + 4_000).toISOString();
  await control.ask(`POST /v1/sessions/${id}/pause`, { body: { wake_at: wakeAt } });
  await control.app.pauseAll(NEVER);
  await new Promise((later) => setTimeout(later, Date.parse(wakeAt) - Date.now() + 500));
  const { rows } = await control.sql.query(
    "select wake_at is not null as waits, wake_drop_at from sessions where id = $1",
    [id],
  );
  expect([await stateOf(id), rows]).toEqual(["paused", [{ waits: true, wake_drop_at: null }]]);
  const after = await createApp(control.settings, silentLog);
  after.startSweeps();
  await eventually(async () => expect(await stateOf(id)).toBe("live"));
  await after.close();
});

test("a stop without a pause ends it, and the sessions stay live", async () => {
  await control.createLive();
  const stop = new AbortController();
  control.node.onSnapshot = () => new Promise(() => {});
  const done = control.app.pauseAll(stop.signal);
  await eventually(() => expect(control.node.saving.size).toBe(1));
  stop.abort();
  control.node.onSnapshot = () => {};
  await control.close();
  await done;
  control = await startControl();
});

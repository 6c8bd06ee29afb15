/**
 * The database is away for ten minutes: nothing is lost, and each deadline that passed meanwhile is carried out once.
 */
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { silentLog } from "../../test-support/database.ts";
import { DatabaseLine } from "../../test-support/database-line.ts";
import { TestClock } from "../../test-support/test-clock.ts";
import { type App, createApp } from "../app.ts";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

let control: Control;
let line: DatabaseLine;
let app: App;
let clock: TestClock;
/** Captures that the node was asked for, by session. */
const captures = new Map<string, number>();
const starts = new Map<string, number>();

beforeAll(async () => {
  control = await startControl({ sweeps: false });
  clock = await TestClock.install(control.sql);
  line = new DatabaseLine(control.settings.databaseUrl);
  await line.restore();
  app = await createApp({ ...control.settings, databaseUrl: line.url }, silentLog);
  app.startSweeps();
});
afterAll(async () => {
  await app.close();
  await line.close();
  await control.close();
});

const count = (map: Map<string, number>, id: string) => map.set(id, (map.get(id) ?? 0) + 1);
const sessionOf = (machineId: string) => machineId.split("-", 1)[0] ?? "";

/** Sends a request to the control plane whose database connection is cut. */
async function ask(method: "GET" | "POST", url: string, body?: object) {
  const answer = await app.server.inject({
    method,
    url,
    headers: { authorization: `Bearer ${control.key}` },
    ...(body && { payload: JSON.stringify(body) }),
  });
  return { status: answer.statusCode, body: answer.json() };
}

async function stateOf(id: string): Promise<string> {
  const { rows } = await control.sql.query("select state, end_reason from sessions where id = $1", [id]);
  return rows[0].end_reason ?? rows[0].state;
}

async function create(body: object = {}): Promise<string> {
  const id = (await ask("POST", "/v1/sessions", body)).body.session_id as string;
  await eventually(async () => expect(await stateOf(id)).toBe("live"));
  return id;
}

async function createPaused(body: object = {}, wakeAt?: string): Promise<string> {
  const id = await create(body);
  expect((await ask("POST", `/v1/sessions/${id}/pause`, { wake_at: wakeAt })).status).toBe(200);
  return id;
}

test("ten minutes without a database destroy nothing, and carry out every overdue deadline once", async () => {
  const live = await create();
  const idle = await create({ idle_timeout_ms: 5 * MINUTE });
  const busy = await create({ idle_timeout_ms: 5 * MINUTE });
  const expired = await create({ max_lifetime_ms: 5 * MINUTE });
  const paused = await createPaused();
  const woken = await createPaused({}, await clock.at(5 * MINUTE));
  const later = await createPaused({ paused_ttl_ms: HOUR }, await clock.at(HOUR));
  const ended = await createPaused({ paused_ttl_ms: 5 * MINUTE });
  const wokenBeforeItsEnd = await createPaused({ paused_ttl_ms: 8 * MINUTE }, await clock.at(5 * MINUTE));
  const pausing = await create();
  control.node.onSnapshot = (_id, spec) => {
    if ("machine_id" in spec) count(captures, sessionOf(spec.machine_id));
  };
  control.node.onStart = (machineId) => void count(starts, sessionOf(machineId));

  const over = Promise.withResolvers<void>();
  control.node.onExec = async (_call, output) => {
    const running = output();
    await over.promise;
    running.exit();
  };
  const command = ask("POST", `/v1/sessions/${busy}/exec`, { command: ["x"] });
  await eventually(() => expect(control.node.execs.map(({ machineId }) => machineId)).toEqual([`${busy}-1`]));
  const captured = Promise.withResolvers<void>();
  const capturing = Promise.withResolvers<void>();
  const onSnapshot = control.node.onSnapshot;
  control.node.onSnapshot = async (id, spec) => {
    await onSnapshot(id, spec);
    capturing.resolve();
    await captured.promise;
  };
  const pauseAnswer = ask("POST", `/v1/sessions/${pausing}/pause`);
  await capturing.promise;
  control.node.onSnapshot = onSnapshot;

  await line.sever();
  await clock.advance(10 * MINUTE);
  captured.resolve();
  await new Promise((resolve) => setTimeout(resolve, 1_500));
  expect((await ask("GET", `/v1/sessions/${live}`)).status).toBe(503);
  await eventually(() => expect(control.node.machines.size).toBe(5));
  await line.restore();

  await eventually(async () => {
    expect({
      idle: await stateOf(idle),
      expired: await stateOf(expired),
      woken: await stateOf(woken),
      ended: await stateOf(ended),
      wokenBeforeItsEnd: await stateOf(wokenBeforeItsEnd),
      pausing: await stateOf(pausing),
    }).toEqual({
      idle: "paused",
      expired: "lifetime_expired",
      woken: "live",
      ended: "paused_ttl",
      wokenBeforeItsEnd: "live",
      pausing: "paused",
    });
  });
  expect((await pauseAnswer).status).toBe(200);
  // Time in which anything would happen a second time.
  await new Promise((resolve) => setTimeout(resolve, 1_500));
  over.resolve();
  expect((await command).status).toBe(200);
  const untouched = await Array.fromAsync([live, busy, paused, later], stateOf);
  expect(untouched).toEqual(["live", "live", "paused", "paused"]);
  expect(Object.fromEntries(captures)).toEqual({ [idle]: 1, [expired]: 1, [pausing]: 1 });
  expect(Object.fromEntries(starts)).toEqual({ [woken]: 1, [wokenBeforeItsEnd]: 1 });
});

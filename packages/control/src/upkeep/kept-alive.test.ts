/** Processes with keep_alive and the idle timer, on a clock that the test moves. */
import type { GuestProcess } from "@vivarium/contract/guest";
import { Refusal } from "@vivarium/contract/test-support/node";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { TestClock } from "../../test-support/test-clock.ts";
import { keptAliveUntil } from "./kept-alive.ts";

const MINUTE = 60_000;
let control: Control;
let clock: TestClock;
/** The processes that every guest reports. */
let processes: GuestProcess[] = [];
let lists = 0;
beforeAll(async () => {
  control = await startControl();
  clock = await TestClock.install(control.sql);
});
afterEach(() => control.destroyAll());
afterAll(() => control.close());

const running = (more: Partial<GuestProcess> = {}): GuestProcess => ({
  name: "web",
  argv: ["x"],
  keep_alive: true,
  pid: 7,
  state: "running",
  started_at_ms: 0,
  ...more,
});
const stateOf = async (id: string) => (await control.ask(`GET /v1/sessions/${id}`)).body.state;

function answerCalls(): void {
  lists = 0;
  control.node.onGuest = (call) => {
    if (call.call === "GET processes") lists += 1;
    call.json(call.call === "GET processes" ? { processes } : (processes[0] ?? running()));
  };
}

async function withProcess(body: object, keepAlive: boolean): Promise<string> {
  const id = await control.createLive({ idle_timeout_ms: MINUTE, ...body });
  processes = [running({ keep_alive: keepAlive })];
  answerCalls();
  const start = { name: "web", command: ["x"], keep_alive: keepAlive };
  await control.use(id, () => control.ask(`POST /v1/sessions/${id}/processes`, { body: start }));
  return id;
}

/** Advances the clock, in steps that skip no other deadline, and runs the sweeps. */
async function pass(ms: number): Promise<void> {
  await clock.advance(ms);
  await new Promise((resolve) => setTimeout(resolve, 400));
  await control.app.checkDeadlines();
}
const untilState = (id: string, state: string) =>
  eventually(async () => expect(await stateOf(id)).toBe(state));

test("a session whose keep_alive process runs is not idle, however long it runs", async () => {
  const id = await withProcess({}, true);
  for (let i = 0; i < 5; i++) {
    await pass(2 * MINUTE);
    await eventually(() => expect(lists).toBeGreaterThan(i));
  }
  expect(await stateOf(id)).toBe("live");
});

test("after it has ended, the idle timer counts from its end", async () => {
  const id = await withProcess({}, true);
  await pass(2 * MINUTE);
  const endedAt = new Date(await clock.at()).getTime();
  processes = [running({ state: "exited", exit_code: 0, ended_at_ms: endedAt })];
  await pass(MINUTE / 2);
  expect(await stateOf(id)).toBe("live");
  await pass(MINUTE);
  await untilState(id, "paused");
});

test("a process without keep_alive does not keep the session awake, and its machine is not asked", async () => {
  const id = await withProcess({}, false);
  await pass(2 * MINUTE);
  await untilState(id, "paused");
  expect(lists).toBe(0);
});

test("other deadlines pass nevertheless", async () => {
  const id = await withProcess({ max_lifetime_ms: 10 * MINUTE }, true);
  await pass(5 * MINUTE);
  expect(await stateOf(id)).toBe("live");
  await pass(6 * MINUTE);
  await untilState(id, "lifetime_expired");
});

test("24 hours of live time pause the session nevertheless", async () => {
  const id = await withProcess({}, true);
  await pass(5 * MINUTE);
  await pass(24 * 60 * MINUTE);
  await untilState(id, "paused");
});

test("a machine that cannot be asked is paused only after ten minutes", async () => {
  const id = await withProcess({}, true);
  control.node.onGuest = () => {
    lists += 1;
    throw new Refusal("agent_unavailable");
  };
  await pass(5 * MINUTE);
  await eventually(() => expect(lists).toBeGreaterThanOrEqual(1));
  expect(await stateOf(id)).toBe("live");
  await pass(7 * MINUTE);
  await untilState(id, "paused");
});

test("machines of children of a fork are asked as well", async () => {
  const id = await withProcess({}, true);
  const { body } = await control.ask(`POST /v1/sessions/${id}/fork`);
  const child = body.children[0] as string;
  await pass(2 * MINUTE);
  await eventually(() => expect(lists).toBeGreaterThanOrEqual(2));
  expect(await stateOf(child)).toBe("live");
  processes = [];
  await pass(2 * MINUTE);
  await untilState(child, "paused");
});

test("machines of sessions started from, or restored to, a checkpoint are asked as well", async () => {
  const id = await withProcess({}, true);
  const checkpoint = (await control.ask(`POST /v1/sessions/${id}/checkpoints`)).body.checkpoint_id;
  await control.sql.query("update sessions set may_keep_alive = false where id = $1", [id]);
  const started = await control.createLive({ from_checkpoint: checkpoint, idle_timeout_ms: MINUTE });
  const back = await control.ask(`POST /v1/sessions/${id}/restore`, { body: { checkpoint_id: checkpoint } });
  expect(back.status).toBe(200);
  await pass(2 * MINUTE);
  await eventually(() => expect(lists).toBeGreaterThanOrEqual(2));
  expect([await stateOf(started), await stateOf(id)]).toEqual(["live", "live"]);
});

test("a keep_alive process that runs again after a wake keeps the session awake again", async () => {
  const id = await withProcess({}, true);
  await control.ask(`POST /v1/sessions/${id}/pause`);
  await control.ask(`POST /v1/sessions/${id}/resume`);
  await pass(2 * MINUTE);
  await eventually(() => expect(lists).toBeGreaterThanOrEqual(1));
  expect(await stateOf(id)).toBe("live");
});

test("a guest's clock is not trusted beyond now", () => {
  const now = new Date("2027-03-01T09:30:00Z");
  const ended = (ended_at_ms: number) => running({ state: "exited", ended_at_ms });
  expect(keptAliveUntil([ended(now.getTime() + 5 * MINUTE)], now)).toEqual(now);
  expect(keptAliveUntil([ended(1000), ended(3000), ended(2000)], now)).toEqual(new Date(3000));
  expect(keptAliveUntil([ended(1000), running()], now)).toEqual(now);
  expect(keptAliveUntil([running({ keep_alive: false })], now)).toBeUndefined();
  expect(keptAliveUntil([], now)).toBeUndefined();
});

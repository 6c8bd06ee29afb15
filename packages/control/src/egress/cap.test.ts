import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { TestClock } from "../../test-support/test-clock.ts";

const MIB = 2 ** 20;
const DAY_MS = 86_400_000;
let control: Control;
let clock: TestClock;
beforeAll(async () => {
  control = await startControl();
  clock = await TestClock.install(control.sql);
});
afterAll(() => control.close());
afterEach(async () => {
  await control.destroyAll();
  control.node.report = { ...control.node.report, counters: [] };
});

const patch = (id: string, body: unknown) => control.ask(`PATCH /v1/sessions/${id}`, { body });
const read = async (id: string) => (await control.ask(`GET /v1/sessions/${id}/egress-cap`)).body;
const limitOf = (id: string, incarnation = 1) =>
  control.node.networks.get(`${id}-${incarnation}`)?.egress_limit_bytes;
const today = async () => (await clock.at()).slice(0, 10);

/** The counter of the machine's kernel. */
function count(id: string, egress: number, { incarnation = 1, isCapped = false } = {}): void {
  const machine_id = `${id}-${incarnation}`;
  const others = control.node.report.counters.filter((counter) => counter.machine_id !== machine_id);
  const counter = {
    machine_id,
    egress_bytes: egress,
    ingress_bytes: 2 * egress,
    dropped_packets: 0,
    is_capped: isCapped,
    limit_bytes: limitOf(id, incarnation),
  };
  control.node.report = { ...control.node.report, counters: [...others, counter] };
}

async function untilBytes(id: string, bytes: number): Promise<void> {
  await eventually(async () => expect((await read(id)).today_bytes).toBe(bytes));
}

test("without a cap the answer says 0, and the machine has no limit", async () => {
  const id = await control.createLive();
  expect(await read(id)).toEqual({
    session_id: id,
    egress_cap_bytes: 0,
    today_bytes: 0,
    date: await today(),
    wake_on_http: true,
  });
  expect(limitOf(id)).toBeUndefined();
});

test("a cap is answered at once and reaches the machine with the sweep", async () => {
  const id = await control.createLive();
  count(id, 3 * MIB);
  await untilBytes(id, 3 * MIB);
  const answer = await patch(id, { egress_cap_bytes: 10 * MIB });
  expect(answer).toMatchObject({
    status: 200,
    body: { session_id: id, egress_cap_bytes: 10 * MIB, today_bytes: 3 * MIB, wake_on_http: true },
  });
  await eventually(() => expect(limitOf(id)).toBe(10 * MIB));
});

test("a cap at create is in the first start, also 0 for no cap", async () => {
  const id = await control.createLive({ egress_cap_bytes: 5 });
  expect(control.node.machines.get(`${id}-1`)?.spec?.network?.egress_limit_bytes).toBe(5);
  expect((await read(id)).egress_cap_bytes).toBe(5);
  const none = await control.createLive({ egress_cap_bytes: 0 });
  expect(limitOf(none)).toBeUndefined();
});

test("0 clears the cap and the machine's limit", async () => {
  const id = await control.createLive({ egress_cap_bytes: 5 });
  expect((await patch(id, { egress_cap_bytes: 0 })).body.egress_cap_bytes).toBe(0);
  await eventually(() => expect(limitOf(id)).toBeUndefined());
});

test.each([
  [{}],
  [{ egress_cap_bytes: null }],
  [{ egress_cap_bytes: -1 }],
  [{ egress_cap_bytes: 1.5 }],
  [{ egress_cap_bytes: "1" }],
  [{ egress_cap_bytes: 2 ** 53 }],
  [{ wake_on_http: false }],
  [{ egress_cap_bytes: -1, wake_on_http: false }],
])("%j is refused and changes nothing", async (body) => {
  const id = await control.createLive({ egress_cap_bytes: 7 });
  const answer = await patch(id, body);
  expect(answer).toMatchObject({ status: 400, body: { code: "validation" } });
  expect(answer.body.error).toMatch(/^egress_cap_bytes: /);
  expect(await read(id)).toMatchObject({ egress_cap_bytes: 7, wake_on_http: true });
});

test("wake_on_http may change beside the cap", async () => {
  const id = await control.createLive();
  expect((await patch(id, { egress_cap_bytes: 0, wake_on_http: false })).body.wake_on_http).toBe(false);
  expect((await control.ask(`GET /v1/sessions/${id}`)).body.wake_on_http).toBe(false);
  expect((await patch(id, { egress_cap_bytes: 1 })).body.wake_on_http).toBe(false);
});

test("a paused session takes a cap without waking, and wakes with what is left of its day", async () => {
  const id = await control.createLive();
  count(id, 4 * MIB);
  await untilBytes(id, 4 * MIB);
  await control.ask(`POST /v1/sessions/${id}/pause`);
  expect((await patch(id, { egress_cap_bytes: 10 * MIB })).status).toBe(200);
  expect((await control.ask(`GET /v1/sessions/${id}`)).body.state).toBe("paused");
  await control.ask(`POST /v1/sessions/${id}/resume`);
  expect(control.node.machines.get(`${id}-2`)?.spec?.network?.egress_limit_bytes).toBe(6 * MIB);
  count(id, 1 * MIB, { incarnation: 2 });
  await untilBytes(id, 5 * MIB);
  expect(limitOf(id, 2)).toBe(6 * MIB);
});

test("bytes between the last tick and the pause count", async () => {
  const id = await control.createLive({ egress_cap_bytes: 10 * MIB });
  control.node.onSnapshot = () => count(id, 7 * MIB);
  await control.ask(`POST /v1/sessions/${id}/pause`);
  control.node.onSnapshot = () => {};
  await untilBytes(id, 7 * MIB);
  await control.ask(`POST /v1/sessions/${id}/resume`);
  await eventually(() => expect(limitOf(id, 2)).toBe(3 * MIB));
});

test("a cap below today's figure leaves nothing", async () => {
  const id = await control.createLive();
  count(id, 4 * MIB);
  await untilBytes(id, 4 * MIB);
  await patch(id, { egress_cap_bytes: MIB });
  await eventually(() => expect(limitOf(id)).toBe(0));
  await control.ask(`POST /v1/sessions/${id}/pause`);
  await control.ask(`POST /v1/sessions/${id}/resume`);
  expect(control.node.machines.get(`${id}-2`)?.spec?.network?.egress_limit_bytes).toBe(0);
});

test("today's figure never decreases, whatever a machine's counter says", async () => {
  const [id, other] = [await control.createLive(), await control.createLive()];
  count(id, 4 * MIB);
  await untilBytes(id, 4 * MIB);
  count(id, MIB);
  // Machines of one report are saved together.
  count(other, MIB);
  await untilBytes(other, MIB);
  expect((await read(id)).today_bytes).toBe(4 * MIB);
});

test("a restore in place keeps the day's figure and cap", async () => {
  const id = await control.createLive({ egress_cap_bytes: 10 * MIB });
  const { body: checkpoint } = await control.ask(`POST /v1/sessions/${id}/checkpoints`);
  count(id, 4 * MIB);
  await untilBytes(id, 4 * MIB);
  await control.ask(`POST /v1/sessions/${id}/restore`, { body: { checkpoint_id: checkpoint.checkpoint_id } });
  expect(await read(id)).toMatchObject({ egress_cap_bytes: 10 * MIB, today_bytes: 4 * MIB });
  expect(limitOf(id, 2)).toBe(6 * MIB);
});

test("a fork has the cap and starts at 0; a session from a checkpoint has no cap", async () => {
  const id = await control.createLive({ egress_cap_bytes: 10 * MIB });
  count(id, 4 * MIB);
  await untilBytes(id, 4 * MIB);
  const { body: fork } = await control.ask(`POST /v1/sessions/${id}/fork`);
  expect(await read(fork.children[0])).toMatchObject({ egress_cap_bytes: 10 * MIB, today_bytes: 0 });
  expect(limitOf(fork.children[0])).toBe(10 * MIB);
  const { body: checkpoint } = await control.ask(`POST /v1/sessions/${id}/checkpoints`);
  const { body: started } = await control.ask(`POST /v1/checkpoints/${checkpoint.checkpoint_id}/sessions`);
  expect(await read(started.session_id)).toMatchObject({ egress_cap_bytes: 0, today_bytes: 0 });
});

test("a session that sent its day's bytes stays live and is marked once a day; the new day gives it all of its cap", async () => {
  const id = await control.createLive({ egress_cap_bytes: 10 * MIB });
  count(id, 10 * MIB, { isCapped: true });
  await untilBytes(id, 10 * MIB);
  const marked = async () =>
    (await control.sql.query("select egress_capped_on from sessions where id = $1", [id])).rows[0]
      .egress_capped_on;
  await eventually(async () => expect(await marked()).toBe(await today()));
  expect((await control.ask(`GET /v1/sessions/${id}`)).body.state).toBe("live");
  const before = await today();
  // Less than a day, since a session that is live for a whole day is paused.
  const now = Date.parse(await clock.at());
  await clock.advance(DAY_MS - (now % DAY_MS) + 50);
  await eventually(() => expect(limitOf(id)).toBe(20 * MIB));
  expect(await read(id)).toMatchObject({ today_bytes: 0, date: await today() });
  expect(await today()).not.toBe(before);
  count(id, 13 * MIB);
  await untilBytes(id, 3 * MIB);
  expect(limitOf(id)).toBe(20 * MIB);
});

test("a cap that was reached stays reached, also with bytes left; a higher one lifts it", async () => {
  const id = await control.createLive({ egress_cap_bytes: 10 * MIB });
  // The packet that would have exceeded the cap was larger than the rest.
  count(id, 10 * MIB - 500, { isCapped: true });
  await untilBytes(id, 10 * MIB - 500);
  await eventually(() => expect(limitOf(id)).toBe(0));
  await control.ask(`POST /v1/sessions/${id}/pause`);
  await control.ask(`POST /v1/sessions/${id}/resume`);
  expect(limitOf(id, 2)).toBe(0);
  await patch(id, { egress_cap_bytes: 10 * MIB });
  await patch(id, { egress_cap_bytes: 20 * MIB });
  await eventually(() => expect(limitOf(id, 2)).toBe(10 * MIB + 500));
  count(id, 10 * MIB, { incarnation: 2, isCapped: true });
  await eventually(() => expect(limitOf(id, 2)).toBe(0));
});

test("a cap that is raised by less than a packet lets that much out", async () => {
  const id = await control.createLive({ egress_cap_bytes: 10 * MIB });
  count(id, 10 * MIB, { isCapped: true });
  await eventually(() => expect(limitOf(id)).toBe(0));
  await patch(id, { egress_cap_bytes: 10 * MIB + 1_000 });
  await eventually(() => expect(limitOf(id)).toBe(10 * MIB + 1_000));
});

test("a wake on the same day never gives bytes back", async () => {
  const id = await control.createLive({ egress_cap_bytes: 10 * MIB });
  count(id, 10 * MIB);
  await untilBytes(id, 10 * MIB);
  for (let incarnation = 2; incarnation < 5; incarnation++) {
    await control.ask(`POST /v1/sessions/${id}/pause`);
    await control.ask(`POST /v1/sessions/${id}/resume`);
    expect(limitOf(id, incarnation)).toBe(0);
  }
});

test("a session that is being created, failed or ended takes no cap", async () => {
  const held = Promise.withResolvers<void>();
  control.node.onStart = () => held.promise;
  const id = await control.create();
  expect(await patch(id, { egress_cap_bytes: 1 })).toMatchObject({
    status: 409,
    body: { code: "session_not_live" },
  });
  held.resolve();
  control.node.onStart = () => {};
  await control.until(id, "live");
  await control.ask(`DELETE /v1/sessions/${id}`);
  expect((await patch(id, { egress_cap_bytes: 1 })).status).toBe(404);
});

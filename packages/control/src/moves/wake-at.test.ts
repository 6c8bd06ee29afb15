/** The instant at which a pause ends by itself: which are taken, and how they are shown. */
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type Control, startControl } from "../../test-support/control.ts";
import { TestClock } from "../../test-support/test-clock.ts";

let control: Control;
let clock: TestClock;
beforeAll(async () => {
  control = await startControl();
  clock = await TestClock.install(control.sql);
});
afterEach(() => control.destroyAll());
afterAll(() => control.close());

const pause = (id: string, body?: object) => control.ask(`POST /v1/sessions/${id}/pause`, { body });
const read = async (id: string) => (await control.ask(`GET /v1/sessions/${id}`)).body;
const inHours = (hours: number) => new Date(Date.now() + hours * 3_600_000).toISOString();

test("a pause of a paused session changes its scheduled wake, or clears it", async () => {
  const id = await control.createLive();
  expect((await pause(id)).status).toBe(200);
  const [soon, later] = [inHours(1), inHours(2)];
  expect((await pause(id, { wake_at: soon })).body.wake_at).toBe(soon);
  expect((await pause(id, { wake_at: later })).body.wake_at).toBe(later);
  expect((await read(id)).wake_at).toBe(later);
  expect((await pause(id)).body).not.toHaveProperty("wake_at");
  expect(control.node.snapshots.size).toBe(1);
});

test("a pause with a wake_at shows it, whatever its UTC offset", async () => {
  const id = await control.createLive();
  const there = inHours(3).replace("Z", "+02:00");
  const here = new Date(there).toISOString();
  expect((await pause(id, { wake_at: there })).body.wake_at).toBe(here);
  expect(await read(id)).toMatchObject({ state: "paused", wake_at: here });
  const small = here.replace("T", "t").replace("Z", "z");
  expect((await pause(id, { wake_at: small })).body.wake_at).toBe(here);
});

test.each([
  ["2020-01-01T00:00:00Z", /^wake_at: must be in the future/],
  [inHours(90 * 24 + 1), /^wake_at: must be at most 90 days in the future/],
  ["tomorrow", /^wake_at: must be an RFC 3339 timestamp, got "tomorrow"/],
  ["2027-02-30T00:00:00Z", /^wake_at: must be an RFC 3339 timestamp/],
  ["2027-02-03T00:00:00", /^wake_at: must be an RFC 3339 timestamp/],
  [1_900_000_000, /^wake_at: must be/],
])("a pause with wake_at %j is refused and pauses nothing", async (wakeAt, message) => {
  const id = await control.createLive();
  const answer = await pause(id, { wake_at: wakeAt });
  expect([answer.status, answer.body.code, answer.body.error]).toEqual([
    400,
    "validation",
    expect.stringMatching(message),
  ]);
  expect((await read(id)).state).toBe("live");
});

test("a pause with the current instant is refused; null means no wake", async () => {
  const id = await control.createLive();
  expect((await pause(id, { wake_at: new Date().toISOString() })).status).toBe(400);
  expect((await pause(id, { wake_at: null })).status).toBe(200);
});

test("a pause may last 90 days to the millisecond, by the service's clock", async () => {
  const id = await control.createLive();
  // Less than a session may be live at a stretch.
  await clock.advance(20 * 3_600_000);
  await clock.stop();
  const now = Date.parse(await clock.at());
  const after = (ms: number) => new Date(now + ms).toISOString();
  const most = 90 * 86_400_000;
  for (const ms of [-1_000, -1, 0, most + 1, most + 1_000])
    expect([ms, (await pause(id, { wake_at: after(ms) })).status]).toEqual([ms, 400]);
  expect((await read(id)).state).toBe("live");
  for (const ms of [most, 60_000])
    expect((await pause(id, { wake_at: after(ms) })).body.wake_at).toBe(after(ms));
});

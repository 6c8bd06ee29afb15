import { afterAll, beforeAll, expect, test } from "vitest";
import { type Control, startControl } from "../../test-support/control.ts";
import { TestClock } from "../../test-support/test-clock.ts";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

let control: Control;
let clock: TestClock;
beforeAll(async () => {
  // Without sweeps, only requests check deadlines.
  control = await startControl({ sweeps: false });
  clock = await TestClock.install(control.sql);
});
afterAll(() => control.close());

test("a paused session past its lifetime is shown as expired before any sweep has seen it", async () => {
  const id = await control.createLive({ max_lifetime_ms: HOUR });
  await control.ask(`POST /v1/sessions/${id}/pause`);
  await clock.advance(HOUR - MINUTE);
  expect((await control.ask(`GET /v1/sessions/${id}`)).body.state).toBe("paused");
  await clock.advance(MINUTE + 1);
  expect((await control.ask(`GET /v1/sessions/${id}`)).body).toMatchObject({
    state: "lifetime_expired",
    status_reason: "the session has reached its max_lifetime_ms of 3600000",
  });
  const resumed = await control.ask(`POST /v1/sessions/${id}/resume`);
  expect([resumed.status, resumed.body.code]).toEqual([410, "session_ended"]);
});

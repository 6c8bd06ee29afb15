import { Refusal } from "@vivarium/contract/test-support/node";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { TestClock } from "../../test-support/test-clock.ts";

let control: Control;
let clock: TestClock;
beforeAll(async () => {
  control = await startControl();
  clock = await TestClock.install(control.sql);
});
afterAll(() => control.close());
beforeEach(() => {
  control.node.onStart = () => {};
});
afterEach(() => control.destroyAll());

const state = async (id: string) => (await control.ask(`GET /v1/sessions/${id}`)).body.state;
const outcome = (wakeId: string) =>
  eventually(() => {
    const known = control.node.wakeOutcomes.get(wakeId);
    if (!known) throw new Error(`${wakeId} is not answered`);
    return known;
  });

async function pausedPreview(settings: object = {}): Promise<string> {
  const id = await control.createLive(settings);
  await control.ask(`POST /v1/sessions/${id}/expose`, { body: { port: 3000 } });
  await control.ask(`POST /v1/sessions/${id}/pause`);
  return id;
}

test("a visitor wakes a paused session, and the gateway knows before the answer", async () => {
  const id = await pausedPreview();
  control.node.visit("w1", id);
  expect(await outcome("w1")).toEqual({ result: "live" });
  expect(control.node.previews.routes.find((route) => route.session_id === id)?.state).toBe("live");
  expect(await state(id)).toBe("live");
});

test("however many visitors wait, the session wakes once", async () => {
  const id = await pausedPreview();
  let starts = 0;
  control.node.onStart = () => {
    starts += 1;
  };
  for (const name of ["a", "b", "c", "d"]) control.node.visit(`many-${name}`, id);
  for (const name of ["a", "b", "c", "d"]) expect(await outcome(`many-${name}`)).toEqual({ result: "live" });
  expect(starts).toBe(1);
});

test("a visitor of a live session is let through at once", async () => {
  const id = await control.createLive();
  await control.ask(`POST /v1/sessions/${id}/expose`, { body: { port: 3000 } });
  control.node.visit("live", id);
  expect(await outcome("live")).toEqual({ result: "live" });
});

test("a session that does not wake on http stays paused", async () => {
  const id = await pausedPreview({ wake_on_http: false });
  control.node.visit("asleep", id);
  expect(await outcome("asleep")).toEqual({ result: "refused", status: 404 });
  expect(await state(id)).toBe("paused");
});

test("a session that exposes nothing is not woken", async () => {
  const id = await control.createLive();
  await control.ask(`POST /v1/sessions/${id}/pause`);
  control.node.visit("closed", id);
  expect(await outcome("closed")).toEqual({ result: "refused", status: 404 });
  expect(await state(id)).toBe("paused");
});

test("a destroyed session is answered like an unknown one", async () => {
  const id = await pausedPreview();
  await control.ask(`DELETE /v1/sessions/${id}`);
  control.node.visit("gone", id);
  control.node.visit("never", "a".repeat(21));
  expect(await outcome("gone")).toEqual({ result: "refused", status: 404 });
  expect(await outcome("never")).toEqual({ result: "refused", status: 404 });
});

test("a session whose lifetime is over can never be woken", async () => {
  const id = await pausedPreview({ max_lifetime_ms: 3_600_000 });
  await clock.advance(3_600_001);
  control.node.visit("late", id);
  expect(await outcome("late")).toEqual({ result: "refused", status: 410 });
});

test("a wake that the node refuses is answered with the time to wait, and the session stays paused", async () => {
  const id = await pausedPreview();
  control.node.onStart = () => {
    throw new Refusal("disk_pressure");
  };
  control.node.visit("full", id);
  expect(await outcome("full")).toEqual({ result: "refused", status: 503, retry_after_s: 30 });
  expect(await state(id)).toBe("paused");
});

test("a node that was away is asked again", async () => {
  const id = await pausedPreview();
  await control.node.restart();
  control.node.visit("after", id);
  expect(await outcome("after")).toEqual({ result: "live" });
});

test("previews that are used count as activity, and keep a session from being idle", async () => {
  const id = await control.createLive({ idle_timeout_ms: 60_000 });
  const before = (await control.ask(`GET /v1/sessions/${id}`)).body.last_active_at;
  let uses = 0;
  const use = () => {
    control.node.report = { ...control.node.report, active_sessions: [id], cursor: `u${++uses}` };
  };
  await new Promise((resolve) => setTimeout(resolve, 20));
  use();
  await eventually(async () => {
    const { last_active_at: now } = (await control.ask(`GET /v1/sessions/${id}`)).body;
    expect(Date.parse(now)).toBeGreaterThan(Date.parse(before));
  });
  for (let step = 0; step < 3; step++) {
    await clock.advance(40_000);
    const moved = await clock.at();
    use();
    // Flushed first: the next step changes the clock, which would make the use look more recent.
    await eventually(async () => {
      const { rows } = await control.sql.query("select last_active_at from sessions where id = $1", [id]);
      expect(rows[0].last_active_at.toISOString() > moved).toBe(true);
    });
    expect(await state(id)).toBe("live");
  }
  await clock.advance(70_000);
  await control.until(id, "paused");
});

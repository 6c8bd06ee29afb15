/** Deadlines as a caller sees them, on a clock that the test moves. */

import { Refusal } from "@vivarium/contract/test-support/node";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Answer, type Control, eventually, startControl } from "../../test-support/control.ts";
import { TestClock } from "../../test-support/test-clock.ts";

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

let control: Control;
let clock: TestClock;
beforeAll(async () => {
  control = await startControl();
  clock = await TestClock.install(control.sql);
});
let snapshots: string[] = [];
beforeEach(() => {
  snapshots = [];
  control.node.onSnapshot = (id) => void snapshots.push(id);
});
afterEach(async () => {
  control.node.onStart = () => {};
  control.node.onExec = (_call, output) => output().exit();
  await control.destroyAll();
});
afterAll(() => control.close());

const call = (id: string, verb: string, body?: object) =>
  control.ask(`POST /v1/sessions/${id}/${verb}`, { body });
const read = async (id: string) => (await control.ask(`GET /v1/sessions/${id}`)).body;
const outcome = (answer: Answer) => [answer.status, answer.body.code];
/** Time for a few sweeps. */
const looks = () => new Promise((resolve) => setTimeout(resolve, 300));

async function ended(id: string): Promise<{ end_reason: string } | undefined> {
  const { body } = await control.ask("GET /v1/sessions?state=ended&limit=500");
  return body.sessions.find((one: { session_id: string }) => one.session_id === id);
}
const untilEnded = (id: string) =>
  eventually(async () => {
    const row = await ended(id);
    if (!row) throw new Error(`${id} is ${(await read(id)).state}`);
    return row;
  });

async function createPaused(body: object = {}, wakeAt?: string): Promise<string> {
  const id = await control.createLive(body);
  const answer = await call(id, "pause", { wake_at: wakeAt });
  expect(answer.status).toBe(200);
  return id;
}

describe("max_lifetime_ms", () => {
  test("pauses a live session for good", async () => {
    const id = await control.createLive({ max_lifetime_ms: HOUR, idle_timeout_ms: HOUR });
    await clock.advance(HOUR + DAY / 2);
    const { body } = await control.until(id, "lifetime_expired");
    expect(body).toMatchObject({
      max_lifetime_ms: HOUR,
      status_reason: `the session has reached its max_lifetime_ms of ${HOUR}`,
      archive: { status: "unavailable" },
    });
    for (const field of ["snapshot_tier", "paused_at", "active_since"])
      expect(body).not.toHaveProperty(field);
    for (const verb of ["resume", "pause"]) {
      expect(outcome(await call(id, verb))).toEqual([410, "session_ended"]);
    }
    expect(outcome(await control.exec(id))).toEqual([410, "session_ended"]);
    expect((await read(id)).state).toBe("lifetime_expired");
    const listed = (await control.ask("GET /v1/sessions?state=paused")).body.sessions;
    expect(listed.map((one: { session_id: string }) => one.session_id)).toEqual([id]);
    await eventually(() => expect(control.node.machines.size).toBe(0));
    expect((await control.ask(`DELETE /v1/sessions/${id}`)).status).toBe(204);
    expect(control.node.snapshots.size).toBe(0);
  });

  test("expires a paused session without waking it", async () => {
    const id = await createPaused({ max_lifetime_ms: HOUR }, await clock.at(2 * HOUR));
    await clock.advance(HOUR);
    expect((await control.until(id, "lifetime_expired")).body).not.toHaveProperty("wake_at");
    await clock.advance(2 * HOUR);
    await looks();
    expect((await read(id)).state).toBe("lifetime_expired");
    await eventually(() => expect(control.node.machines.size).toBe(0));
  });

  test("is over for a resume that comes before any sweep has seen it", async () => {
    const id = await createPaused({ max_lifetime_ms: HOUR });
    await clock.advance(HOUR);
    expect(outcome(await call(id, "resume"))).toEqual([410, "session_ended"]);
    expect((await read(id)).state).toBe("lifetime_expired");
  });

  test("destroys the session when the pause itself fails", async () => {
    const id = await control.createLive({ max_lifetime_ms: HOUR });
    control.node.onSnapshot = () => {
      throw new Refusal("capture_failed");
    };
    await clock.advance(HOUR);
    expect((await untilEnded(id)).end_reason).toBe("max_lifetime");
    await eventually(() => expect(control.node.machines.size).toBe(0));
  });

  test("does not destroy a session because its node is away for a while", async () => {
    const id = await control.createLive({ max_lifetime_ms: HOUR });
    await control.node.goDown();
    await clock.advance(HOUR);
    await looks();
    expect((await read(id)).state).toBe("live");
    await control.node.listen();
    await eventually(async () => expect((await read(id)).state).toBe("lifetime_expired"));
  });

  test("comes before an idle timeout that passed earlier", async () => {
    const id = await control.createLive({ max_lifetime_ms: HOUR, idle_timeout_ms: MINUTE });
    await clock.advance(HOUR);
    await control.until(id, "lifetime_expired");
    expect(snapshots).toHaveLength(1);
  });
});

describe("idle_timeout_ms", () => {
  test("pauses an idle session, and a command wakes it", async () => {
    const id = await control.createLive({ idle_timeout_ms: 10 * MINUTE });
    await clock.advance(9 * MINUTE);
    await looks();
    expect((await read(id)).state).toBe("live");
    await clock.advance(MINUTE + 3 * SECOND);
    await control.until(id, "paused");
    expect((await control.exec(id)).status).toBe(200);
    expect((await read(id)).state).toBe("live");
  });

  test("counts from the last command", async () => {
    const id = await control.createLive({ idle_timeout_ms: 10 * MINUTE });
    await clock.advance(9 * MINUTE);
    await control.use(id, () => control.exec(id));
    await clock.advance(9 * MINUTE);
    await looks();
    expect((await read(id)).state).toBe("live");
    await clock.advance(2 * MINUTE);
    await control.until(id, "paused");
  });

  test("does not run while a command does", async () => {
    const id = await control.createLive({ idle_timeout_ms: 10 * MINUTE });
    const { promise: ended, resolve: end } = Promise.withResolvers<void>();
    control.node.onExec = async (_call, output) => {
      const running = output();
      await ended;
      running.exit();
    };
    await control.use(id, async () => {
      const ran = control.exec(id);
      await eventually(() =>
        expect(control.node.execs.some(({ machineId }) => machineId === `${id}-1`)).toBe(true),
      );
      for (let n = 0; n < 3; n++) {
        await clock.advance(9 * MINUTE);
        await new Promise((resolve) => setTimeout(resolve, 1_300));
        expect((await read(id)).state).toBe("live");
      }
      end();
      expect((await ran).status).toBe(200);
    });
    await clock.advance(11 * MINUTE);
    await control.until(id, "paused");
  });

  test("is tried again when the pause fails, but not at once: the guest may have been stopped for it", async () => {
    const id = await control.createLive({ idle_timeout_ms: MINUTE });
    let tries = 0;
    control.node.onSnapshot = () => {
      tries += 1;
      throw new Refusal("disk_pressure");
    };
    await clock.advance(5 * MINUTE);
    await eventually(() => expect(tries).toBe(1));
    await looks();
    await looks();
    expect([(await read(id)).state, tries]).toEqual(["live", 1]);
    control.node.onSnapshot = () => {};
    // The wait starts when the failed pause has been rolled back, which the test cannot see. So the clock advances with
    // every check.
    await eventually(async () => {
      await clock.advance(11 * SECOND);
      expect((await read(id)).state).toBe("paused");
    });
  });
});

test("a session is paused after 24 hours of continuous live time, whatever its settings", async () => {
  const id = await control.createLive();
  await clock.advance(DAY - MINUTE);
  await control.exec(id);
  await looks();
  expect((await read(id)).state).toBe("live");
  await clock.advance(MINUTE);
  await control.until(id, "paused");
  await call(id, "resume");
  await clock.advance(DAY - MINUTE);
  await looks();
  expect((await read(id)).state).toBe("live");
  await clock.advance(MINUTE);
  await control.until(id, "paused");
});

describe("wake_at", () => {
  /** The ten minutes count from the first refusal. */
  const untilRefused = (id: string) =>
    eventually(async () => {
      const { rows } = await control.sql.query("select wake_drop_at from sessions where id = $1", [id]);
      expect(rows[0].wake_drop_at).not.toBeNull();
    });

  test("wakes a session that is still paused", async () => {
    const id = await createPaused({}, await clock.at(HOUR));
    await clock.advance(HOUR - MINUTE);
    await looks();
    expect((await read(id)).state).toBe("paused");
    await clock.advance(MINUTE);
    const { body } = await control.until(id, "live");
    expect(body).not.toHaveProperty("wake_at");
  });

  test("does nothing to a session that was resumed, even if it is paused again since", async () => {
    const id = await createPaused({}, await clock.at(HOUR));
    await call(id, "resume");
    await call(id, "pause");
    await clock.advance(2 * HOUR);
    await looks();
    expect((await read(id)).state).toBe("paused");
    await eventually(() => expect(control.node.machines.size).toBe(0));
  });

  test("that was cleared does not wake the session, and one that was replaced wakes it at the new instant only", async () => {
    const cleared = await createPaused({}, await clock.at(HOUR));
    await call(cleared, "pause");
    const replaced = await createPaused({}, await clock.at(HOUR));
    await call(replaced, "pause", { wake_at: await clock.at(3 * HOUR) });
    await clock.advance(2 * HOUR);
    await looks();
    expect([(await read(cleared)).state, (await read(replaced)).state]).toEqual(["paused", "paused"]);
    await clock.advance(HOUR);
    await control.until(replaced, "live");
    expect((await read(cleared)).state).toBe("paused");
  });

  test("that is refused is retried for ten minutes", async () => {
    const id = await createPaused({}, await clock.at(HOUR));
    control.node.onStart = () => {
      throw new Refusal("disk_pressure");
    };
    await clock.advance(HOUR);
    await untilRefused(id);
    expect((await read(id)).wake_at).toBeDefined();
    await clock.advance(9 * MINUTE);
    control.node.onStart = () => {};
    await control.until(id, "live");
  });

  test("that is refused is not due again before its retry time is set", async () => {
    const id = await createPaused({}, await clock.at(HOUR));
    control.node.onStart = () => {
      throw new Refusal("disk_pressure");
    };
    // Records the row's due time at the instant at which the wake operation ends.
    await control.sql.query(`
      create table wakes_over (looked_at_in interval);
      create function note_wake() returns trigger language plpgsql as $$ begin
        insert into wakes_over values (new.due_at - service_now()); return new; end $$;
      create trigger wake_over after update on sessions for each row
        when (old.op = 'wake' and new.op is null) execute function note_wake()`);
    await clock.advance(HOUR);
    await untilRefused(id);
    const { rows } = await control.sql.query("select looked_at_in > '0' as is_later from wakes_over limit 1");
    expect(rows).toEqual([{ is_later: true }]);
    await control.sql.query("drop trigger wake_over on sessions");
  });

  test("that is refused for longer than ten minutes is dropped", async () => {
    const id = await createPaused({}, await clock.at(HOUR));
    control.node.onStart = () => {
      throw new Refusal("disk_pressure");
    };
    await clock.advance(HOUR);
    await untilRefused(id);
    await clock.advance(10 * MINUTE + SECOND);
    await eventually(async () => expect(await read(id)).not.toHaveProperty("wake_at"));
    control.node.onStart = () => {};
    await clock.advance(HOUR);
    await looks();
    expect((await read(id)).state).toBe("paused");
  });
});

describe("paused_ttl_ms", () => {
  test("destroys a session that has been paused for longer", async () => {
    const id = await createPaused({ paused_ttl_ms: DAY });
    await clock.advance(DAY - MINUTE);
    await looks();
    expect((await read(id)).state).toBe("paused");
    await clock.advance(MINUTE);
    expect((await untilEnded(id)).end_reason).toBe("paused_ttl");
    await eventually(() => expect(control.node.snapshots.size).toBe(0));
    expect(outcome(await call(id, "resume"))).toEqual([404, "not_found"]);
  });

  test("is 30 days by default, and never when negative", async () => {
    const usual = await createPaused();
    const kept = await createPaused({ paused_ttl_ms: -5 });
    expect([(await read(usual)).paused_ttl_ms, (await read(kept)).paused_ttl_ms]).toEqual([30 * DAY, -5]);
    await clock.advance(30 * DAY);
    expect((await untilEnded(usual)).end_reason).toBe("paused_ttl");
    await clock.advance(1000 * DAY);
    await looks();
    expect((await read(kept)).state).toBe("paused");
    expect((await call(kept, "resume")).status).toBe(200);
  });

  test("counts from the last pause", async () => {
    const id = await createPaused({ paused_ttl_ms: DAY });
    await clock.advance(DAY - MINUTE);
    await call(id, "resume");
    await call(id, "pause");
    await clock.advance(DAY - MINUTE);
    await looks();
    expect((await read(id)).state).toBe("paused");
  });

  test("also limits how long an expired session is kept", async () => {
    const id = await control.createLive({ max_lifetime_ms: HOUR, paused_ttl_ms: DAY });
    await clock.advance(HOUR);
    await control.until(id, "lifetime_expired");
    await clock.advance(DAY);
    expect((await untilEnded(id)).end_reason).toBe("paused_ttl");
    await eventually(() => expect(control.node.snapshots.size).toBe(0));
  });
});

test("the fields are accepted within their ranges, and shown", async () => {
  const id = await control.createLive({ max_lifetime_ms: DAY, idle_timeout_ms: HOUR, paused_ttl_ms: 5 });
  expect(await read(id)).toMatchObject({ max_lifetime_ms: DAY, idle_timeout_ms: HOUR, paused_ttl_ms: 5 });
  const plain = await control.createLive({ max_lifetime_ms: 0, idle_timeout_ms: 0, paused_ttl_ms: 0 });
  expect(await read(plain)).toMatchObject({ paused_ttl_ms: 30 * DAY });
  for (const field of ["max_lifetime_ms", "idle_timeout_ms"]) {
    expect(await read(plain)).not.toHaveProperty(field);
  }
  for (const body of [
    { max_lifetime_ms: DAY + 1 },
    { idle_timeout_ms: HOUR + 1 },
    { max_lifetime_ms: -1 },
    { max_lifetime_ms: 1, paused_ttl_ms: -1 },
  ]) {
    expect(outcome(await control.ask("POST /v1/sessions", { body }))).toEqual([400, "validation"]);
  }
});

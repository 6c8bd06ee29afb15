/** The one command of a destroy_on_completion session, and the end of the session when control dies during it. */

import { Refusal } from "@vivarium/contract/test-support/node";
import { randomId } from "@vivarium/kit/id";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { type Answer, type Control, eventually, startControl } from "../../test-support/control.ts";
import { silentLog } from "../../test-support/database.ts";
import { withMortal } from "../../test-support/mortal-control.ts";
import { openDatabase } from "../db/pool.ts";
import { expireDetachedCommand } from "../leases/detached-command.ts";
import { extendLease, type Lease, revertLease } from "../leases/lease.ts";

let control: Control;
beforeAll(async () => {
  control = await startControl();
});
afterEach(async () => {
  control.node.onExec = (_call, output) => output().exit();
  control.node.onDelete = () => {};
  control.node.onGuest = (_asked, proceed) => proceed();
  await control.destroyAll();
});
afterAll(() => control.close());

const runsOut = async (id: string): Promise<Date | null> =>
  (await control.sql.query("select destroy_after from sessions where id = $1", [id])).rows[0].destroy_after;

/** The session's lease, the time that its command had left at a pause, and whether the command runs without a listener. */
async function standing(id: string): Promise<unknown[]> {
  const columns = "destroy_after, command_left_ms, command_goes_on";
  const { rows } = await control.sql.query(`select ${columns} from sessions where id = $1`, [id]);
  return Object.values(rows[0]);
}

test.each(["", "?stream=true"])(
  "a session whose process dies during its only command is destroyed once the command's time is over (%s)",
  async (query) => {
    const id = await control.createLive({ destroy_on_completion: true });
    const running = Promise.withResolvers<void>();
    control.node.onExec = (_call, output) => {
      output();
      running.resolve();
    };
    const startedAt = Date.now();
    await withMortal(control, "none", async (mortal) => {
      const body = { command: ["sleep", "60"], timeout_ms: 120_000 };
      const answer = mortal.ask(`POST /v1/sessions/${id}/exec${query}`, body);
      await running.promise;
      mortal.kill();
      expect(await answer).toBe("broken");
    });
    expect((await runsOut(id))?.getTime()).toBeGreaterThan(startedAt + 120_000);
    await control.sql.query(
      "update sessions set destroy_after = destroy_after - interval '1 hour' where id = $1",
      [id],
    );
    await eventually(async () => expect((await control.ask(`GET /v1/sessions/${id}`)).status).toBe(404));
  },
);

test("a command that was refused before it started leaves the session as it was", async () => {
  const id = await control.createLive({ destroy_on_completion: true });
  let during: Date | null = null;
  control.node.onExec = async () => {
    during = await runsOut(id);
    throw new Refusal("cwd_not_found");
  };
  for (const query of ["", "?stream=true"]) {
    const answer = await control.ask(`POST /v1/sessions/${id}/exec${query}`, { body: { command: ["x"] } });
    expect(answer.status).toBe(400);
    expect(during).toBeInstanceOf(Date);
    expect(await runsOut(id)).toBeNull();
  }
});

test("a command that may have started is the only one", async () => {
  const id = await control.createLive({ destroy_on_completion: true });
  control.node.onExec = (_call, output) => output().breakOff();
  expect((await control.exec(id)).status).toBe(500);
  expect(await runsOut(id)).toBeInstanceOf(Date);
});

describe("a command that a pause broke off", () => {
  const TIME_MS = 120_000;
  let currentMachine = 1;
  beforeEach(() => {
    currentMachine = 1;
    control.node.onGuest = (asked, proceed) =>
      asked.call === "GET commands" ? asked.json({ going_on: currentMachine }) : proceed();
  });

  async function pausedUnder(query: string): Promise<string> {
    const id = await control.createLive({ destroy_on_completion: true });
    const running = Promise.withResolvers<void>();
    control.node.onExec = (_call, output) => {
      output();
      running.resolve();
    };
    const body = { command: ["sleep", "60"], timeout_ms: TIME_MS };
    const answer = control.ask(`POST /v1/sessions/${id}/exec${query}`, { body });
    await running.promise;
    expect((await control.ask(`POST /v1/sessions/${id}/pause`)).status).toBe(200);
    const { status, body: refused, text } = await answer;
    if (query) expect(text).toMatch(/event: error\ndata: the session was paused while the command ran/);
    else expect([status, refused.code]).toEqual([409, "conflict"]);
    return id;
  }

  test.each(["", "?stream=true"])(
    "counts as the only one: its time continues with the wake, and then the session ends (%s)",
    async (query) => {
      const id = await pausedUnder(query);
      await control.sql.query("update sessions set destroy_after = now() - interval '1 s' where id = $1", [
        id,
      ]);
      await new Promise((resolve) => setTimeout(resolve, 300));
      expect((await control.ask(`GET /v1/sessions/${id}`)).body.state).toBe("paused");
      await control.ask(`POST /v1/sessions/${id}/resume`);
      const left = ((await runsOut(id))?.getTime() ?? 0) - Date.now();
      expect(left).toBeGreaterThan(TIME_MS / 2);
      expect(left).toBeLessThanOrEqual(TIME_MS + 30_000);
      await control.sql.query("update sessions set destroy_after = now() - interval '1 s' where id = $1", [
        id,
      ]);
      await eventually(async () => expect((await control.ask(`GET /v1/sessions/${id}`)).status).toBe(404));
    },
  );

  test("ends its session with its end in the guest, and not while it cannot be asked", async () => {
    const id = await pausedUnder("");
    const asked = Promise.withResolvers<void>();
    control.node.onGuest = async (call, proceed) => {
      if (call.call !== "GET commands") return await proceed();
      if (currentMachine === 1) asked.resolve();
      throw new Refusal("agent_unavailable");
    };
    await control.ask(`POST /v1/sessions/${id}/resume`);
    await asked.promise;
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect((await control.ask(`GET /v1/sessions/${id}`)).body.state).toBe("live");
    control.node.onGuest = (call) => call.json({ going_on: currentMachine });
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect((await control.ask(`GET /v1/sessions/${id}`)).body.state).toBe("live");
    currentMachine = 0;
    await eventually(async () => expect((await control.ask(`GET /v1/sessions/${id}`)).status).toBe(404));
  });

  test("does not count if it turns out not to have started", async () => {
    const id = await control.createLive({ destroy_on_completion: true });
    const [captured, answered] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    control.node.onSnapshot = () => {
      captured.resolve();
      return answered.promise;
    };
    let paused: Promise<Answer> | undefined;
    control.node.onExec = async () => {
      paused = control.ask(`POST /v1/sessions/${id}/pause`);
      await captured.promise;
      throw new Refusal("cwd_not_found");
    };
    expect((await control.exec(id)).status).toBe(400);
    answered.resolve();
    expect((await paused)?.status).toBe(200);
    control.node.onSnapshot = () => {};
    const { rows } = await control.sql.query("select command_left_ms from sessions where id = $1", [id]);
    expect([rows[0].command_left_ms, await runsOut(id)]).toEqual([null, null]);
  });

  test.each(["before", "after"])(
    "does not count after the wake either if its refusal is known only after the pause (%s the wake)",
    async (when) => {
      const id = await control.createLive({ destroy_on_completion: true });
      const db = openDatabase({ url: control.settings.databaseUrl, log: silentLog });
      onTestFinished(() => db.destroy());
      const lease = await extendLease(db, id, TIME_MS);
      expect((await control.ask(`POST /v1/sessions/${id}/pause`)).status).toBe(200);
      if (when === "before") await revertLease(db, id, lease as Lease);
      expect((await control.ask(`POST /v1/sessions/${id}/resume`)).status).toBe(200);
      if (when === "after") await revertLease(db, id, lease as Lease);
      expect(await standing(id)).toEqual([null, null, false]);
    },
  );

  test("does not end its session under a command that began after the wake", async () => {
    const id = await pausedUnder("");
    await control.ask(`POST /v1/sessions/${id}/resume`);
    const db = openDatabase({ url: control.settings.databaseUrl, log: silentLog });
    onTestFinished(() => db.destroy());
    // Simulates a sweep that has read the row before.
    const { rows } = await control.sql.query("select * from sessions where id = $1", [id]);
    await extendLease(db, id, TIME_MS);
    await expireDetachedCommand(db, rows[0]);
    expect((await runsOut(id))?.getTime()).toBeGreaterThan(Date.now() + TIME_MS / 2);
  });

  test("still counts when the next one is refused", async () => {
    const id = await pausedUnder("");
    await control.ask(`POST /v1/sessions/${id}/resume`);
    const before = await standing(id);
    control.node.onExec = () => {
      throw new Refusal("cwd_not_found");
    };
    expect((await control.exec(id)).status).toBe(400);
    expect(await standing(id)).toEqual(before);
    expect(before).toEqual([expect.any(Date), null, true]);
  });

  test("is gone after a restore to a state before it", async () => {
    const id = await control.createLive({ destroy_on_completion: true });
    const { checkpoint_id } = (await control.ask(`POST /v1/sessions/${id}/checkpoints`)).body;
    const running = Promise.withResolvers<void>();
    control.node.onExec = (_call, output) => {
      output();
      running.resolve();
    };
    const answer = control.exec(id, ["sleep", "60"]);
    await running.promise;
    await control.ask(`POST /v1/sessions/${id}/restore`, { body: { checkpoint_id } });
    expect((await answer).status).toBe(409);
    expect(await runsOut(id)).toBeNull();
  });
});

test("a session that may have many commands has no such end", async () => {
  const id = await control.createLive();
  let during: Date | null | undefined;
  control.node.onExec = async (_call, output) => {
    during = await runsOut(id);
    output().exit();
  };
  await control.exec(id);
  expect(during).toBeNull();
});

test("a run, which renews a lease of its own, is not put off by a caller's command", async () => {
  const id = await control.createLive({ name: randomId() });
  const lease = new Date(Date.now() + 60_000);
  await control.sql.query(
    "update sessions set origin = 'run', destroy_on_completion = true, destroy_after = $2 where id = $1",
    [id, lease],
  );
  let during: Date | null | undefined;
  control.node.onExec = async (_call, output) => {
    during = await runsOut(id);
    output().exit();
  };
  await control.exec(id);
  expect(during).toEqual(lease);
});

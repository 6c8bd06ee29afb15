/** A process is killed at a crash point of a pause, wake, create or destroy: another process ends what it began. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { killAt, letClaimsLapse, withMortal } from "../../test-support/mortal-control.ts";

/** Claims and leases last five seconds, and the machine may be busy. */
const TAKEN_OVER_MS = 20_000;

let control: Control;
beforeAll(async () => {
  control = await startControl();
  await control.sql.query("update orgs set concurrent_sessions = 100");
});
afterAll(() => control.close());

const rowOf = async (id: string) =>
  (await control.sql.query("select * from sessions where id = $1", [id])).rows[0];
const machinesOf = (id: string) =>
  [...control.node.machines]
    .filter(([name]) => name.startsWith(id))
    .map(([name, { state }]) => [name, state]);
const snapshotsOf = (id: string) =>
  [...control.node.snapshots.values()]
    .filter(({ spec }) => spec && "machine_id" in spec && spec.machine_id.startsWith(id))
    .map(({ snapshot_id }) => snapshot_id);

async function createPaused(): Promise<string> {
  const id = await control.createLive();
  expect((await control.ask(`POST /v1/sessions/${id}/pause`)).status).toBe(200);
  return id;
}

describe.concurrent("killed at", () => {
  test.each(["pause.intent", "pause.commit"])(
    "%s: the session is paused nevertheless, and wakes",
    async (point) => {
      const id = await control.createLive();
      await killAt(control, point, `POST /v1/sessions/${id}/pause`);
      await letClaimsLapse(control, id);
      await eventually(async () => {
        expect(await rowOf(id)).toMatchObject({ state: "paused", op: null });
        expect(machinesOf(id)).toEqual([]);
        expect(snapshotsOf(id)).toEqual([(await rowOf(id)).snapshot_id]);
      }, TAKEN_OVER_MS);
      expect((await control.exec(id)).status).toBe(200);
      expect(machinesOf(id)).toEqual([[`${id}-2`, "running"]]);
    },
  );

  test("pause.release: the pause was answered, and nothing of the machine remains", async () => {
    const id = await control.createLive();
    await withMortal(control, "pause.release", async (mortal) => {
      const answer = await mortal.ask(`POST /v1/sessions/${id}/pause`);
      if (answer !== "broken") expect(answer.status).toBe(200);
      expect(await mortal.died).toBe("SIGKILL");
    });
    expect(await rowOf(id)).toMatchObject({ state: "paused", op: null });
    await eventually(() => expect(machinesOf(id)).toEqual([]), TAKEN_OVER_MS);
    expect((await control.exec(id)).status).toBe(200);
  });

  test.each(["wake.intent", "wake.started", "wake.commit"])(
    "%s: the session is awake nevertheless, with one machine",
    async (point) => {
      const id = await createPaused();
      await killAt(control, point, `POST /v1/sessions/${id}/resume`);
      await letClaimsLapse(control, id);
      await eventually(
        async () => expect(await rowOf(id)).toMatchObject({ state: "live", incarnation: 2, op: null }),
        TAKEN_OVER_MS,
      );
      expect(machinesOf(id)).toEqual([[`${id}-2`, "running"]]);
      expect((await control.exec(id)).status).toBe(200);
    },
  );

  test("wake.intent: a command that comes before it is taken over waits for that wake", async () => {
    const id = await createPaused();
    await killAt(control, "wake.intent", `POST /v1/sessions/${id}/exec`, { command: ["true"] });
    const { status, body } = await control.exec(id);
    expect([status, body.exit_code]).toEqual([200, 0]);
    expect(machinesOf(id)).toEqual([[`${id}-2`, "running"]]);
  });

  test("create.commit: the session, whose caller got no answer, becomes live and can be destroyed", async () => {
    await killAt(control, "create.commit", "POST /v1/sessions", { name: "orphaned" });
    const { rows } = await control.sql.query("select id from sessions where name = 'orphaned'");
    const id = rows[0].id as string;
    await letClaimsLapse(control, id);
    await eventually(async () => expect((await rowOf(id)).state).toBe("live"), TAKEN_OVER_MS);
    expect(machinesOf(id)).toEqual([[`${id}-1`, "running"]]);
    expect((await control.ask(`DELETE /v1/sessions/${id}`)).status).toBe(204);
    expect(machinesOf(id)).toEqual([]);
  });

  test("create.started: the session becomes live with the machine that was started, and no other", async () => {
    const id = await withMortal(control, "create.started", async (mortal) => {
      const answer = await mortal.ask("POST /v1/sessions", { name: "started" });
      if (answer !== "broken") expect(answer.status).toBe(200);
      expect(await mortal.died).toBe("SIGKILL");
      const { rows } = await control.sql.query("select id from sessions where name = 'started'");
      return rows[0].id as string;
    });
    await letClaimsLapse(control, id);
    await eventually(async () => expect((await rowOf(id)).state).toBe("live"), TAKEN_OVER_MS);
    expect(machinesOf(id)).toEqual([[`${id}-1`, "running"]]);
    expect((await control.exec(id)).status).toBe(200);
  });

  test.each([
    ["live", () => control.createLive()],
    ["paused", createPaused],
  ])("destroy.commit of a session that is %s: nothing of it remains", async (_state, make) => {
    const id = await make();
    await killAt(control, "destroy.commit", `DELETE /v1/sessions/${id}`);
    expect((await control.ask(`GET /v1/sessions/${id}`)).status).toBe(404);
    await eventually(() => expect([machinesOf(id), snapshotsOf(id)]).toEqual([[], []]), TAKEN_OVER_MS);
  });
});

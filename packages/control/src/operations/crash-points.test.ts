/** A process is killed at a crash point of an operation: another process ends the operation. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { killAt, letClaimsLapse, withMortal } from "../../test-support/mortal-control.ts";

/** Claims and leases last five seconds, and the machine may be busy. */
const TAKEN_OVER_MS = 60_000;

let control: Control;
beforeAll(async () => {
  control = await startControl();
  await control.sql.query("update orgs set concurrent_sessions = 100");
});
afterAll(() => control.close());

const rowOf = async (id: string) =>
  (await control.sql.query("select * from sessions where id = $1", [id])).rows[0];
const childrenOf = async (id: string) =>
  (await control.sql.query("select * from sessions where parent_session_id = $1", [id])).rows;
const machinesOf = (id: string) =>
  [...control.node.machines]
    .filter(([name]) => name.startsWith(id))
    .map(([name, { state }]) => [name.slice(id.length + 1), state]);
/** Snapshots made from the session's machines. */
const snapshotsOf = (id: string, kind: string) =>
  [...control.node.snapshots.values()].filter(
    ({ snapshot_id, spec }) =>
      snapshot_id.startsWith(kind) && spec && "machine_id" in spec && spec.machine_id.startsWith(id),
  );
const checkpointOf = async (id: string): Promise<string> =>
  (await control.ask(`POST /v1/sessions/${id}/checkpoints`)).body.checkpoint_id;

/** Resolves once another process has ended the operation of the dead one. */
async function untilFree(id: string): Promise<void> {
  await letClaimsLapse(control, id);
  await untilTakenOver(id);
}

async function untilTakenOver(id: string): Promise<void> {
  await eventually(async () => expect((await rowOf(id)).op).toBe(null), TAKEN_OVER_MS);
}

describe.concurrent("killed at", () => {
  test.each(["fork.intent", "fork.captured", "fork.children"])(
    "%s: neither a child nor their snapshot remains",
    async (point) => {
      const id = await control.createLive();
      await killAt(control, point, `POST /v1/sessions/${id}/fork`, { count: 2 });
      const made = (await childrenOf(id)).map((child) => child.id);
      expect(made).toHaveLength(2);
      await untilFree(id);
      await eventually(async () => {
        expect(await childrenOf(id)).toEqual([]);
        expect(made.flatMap(machinesOf)).toEqual([]);
        expect(snapshotsOf(id, "frk_")).toEqual([]);
      }, TAKEN_OVER_MS);
      expect(machinesOf(id)).toEqual([["1", "running"]]);
      expect((await control.ask(`POST /v1/sessions/${id}/fork`)).status).toBe(200);
    },
  );

  test("fork.commit: the children are live and stay, and their snapshot is deleted", async () => {
    const id = await control.createLive();
    await killAt(control, "fork.commit", `POST /v1/sessions/${id}/fork`, { count: 2 });
    await untilFree(id);
    expect(snapshotsOf(id, "frk_")).toEqual([]);
    const children = await childrenOf(id);
    expect(children.map(({ state, destroy_after }) => [state, destroy_after])).toEqual([
      ["live", null],
      ["live", null],
    ]);
    for (const child of children) expect((await control.exec(child.id)).status).toBe(200);
  });

  test("restore.intent: the session is as it was", async () => {
    const id = await control.createLive();
    const chk = await checkpointOf(id);
    await killAt(control, "restore.intent", `POST /v1/sessions/${id}/restore`, { checkpoint_id: chk });
    await untilFree(id);
    expect(await rowOf(id)).toMatchObject({ state: "live", incarnation: 1 });
    expect(machinesOf(id)).toEqual([["1", "running"]]);
    expect((await control.exec(id)).status).toBe(200);
  });

  test("restore.intent of a paused session: it is still paused, and wakes", async () => {
    const id = await control.createLive();
    const chk = await checkpointOf(id);
    await control.ask(`POST /v1/sessions/${id}/pause`);
    await killAt(control, "restore.intent", `POST /v1/sessions/${id}/restore`, { checkpoint_id: chk });
    await untilFree(id);
    expect(await rowOf(id)).toMatchObject({ state: "paused", incarnation: 1 });
    expect((await control.exec(id)).status).toBe(200);
    expect(machinesOf(id)).toEqual([["2", "running"]]);
  });

  test.each(["restore.swap", "restore.release"])(
    "%s: the session is at the checkpoint, on one machine that runs",
    async (point) => {
      const id = await control.createLive();
      const chk = await checkpointOf(id);
      await killAt(control, point, `POST /v1/sessions/${id}/restore`, { checkpoint_id: chk });
      await untilFree(id);
      expect(await rowOf(id)).toMatchObject({ state: "live", incarnation: 2 });
      expect(machinesOf(id)).toEqual([["2", "running"]]);
      expect(control.node.machines.get(`${id}-2`)?.spec?.snapshot_id).toBe(chk);
      expect((await control.exec(id)).status).toBe(200);
    },
  );

  test("checkpoint.intent: nothing is kept", async () => {
    const id = await control.createLive();
    await killAt(control, "checkpoint.intent", `POST /v1/sessions/${id}/checkpoints`, { name: "a" });
    await untilFree(id);
    expect(snapshotsOf(id, "chk_")).toEqual([]);
    expect((await control.ask(`GET /v1/sessions/${id}/checkpoints`)).body.checkpoints).toEqual([]);
    expect((await control.ask(`POST /v1/sessions/${id}/checkpoints`, { body: { name: "a" } })).status).toBe(
      200,
    );
  });

  test("checkpoint.commit: the checkpoint is kept and can be started", async () => {
    const id = await control.createLive();
    await killAt(control, "checkpoint.commit", `POST /v1/sessions/${id}/checkpoints`);
    expect((await rowOf(id)).op).toBe(null);
    const { body } = await control.ask(`GET /v1/sessions/${id}/checkpoints`);
    expect(body.checkpoints).toHaveLength(1);
    const [{ checkpoint_id: chk }] = body.checkpoints;
    expect((await control.ask(`POST /v1/checkpoints/${chk}/sessions`)).body.state).toBe("live");
  });

  test.each(["checkpoint_delete.commit", "release.origin"])(
    "%s: the checkpoint is gone, and so is its state",
    async (point) => {
      const id = await control.createLive();
      const chk = await checkpointOf(id);
      await killAt(control, point, `DELETE /v1/checkpoints/${chk}`);
      expect((await control.ask(`GET /v1/checkpoints/${chk}`)).status).toBe(404);
      await eventually(() => expect(snapshotsOf(id, "chk_")).toEqual([]), TAKEN_OVER_MS);
      expect((await control.exec(id)).status).toBe(200);
    },
  );

  test("template_delete.commit: the template is gone, and so is its state; sessions from it stay live", async () => {
    const id = await control.createLive();
    await control.ask(`POST /v1/sessions/${id}/templates`, { body: { name: "going" } });
    const started = await control.createLive({ template: "going" });
    await killAt(control, "template_delete.commit", "DELETE /v1/templates/going");
    expect((await control.ask("GET /v1/templates/going")).status).toBe(404);
    await eventually(() => expect(snapshotsOf(id, "tpl_")).toEqual([]), TAKEN_OVER_MS);
    expect((await control.exec(started)).status).toBe(200);
  });

  test("save_template.intent: no version number is used", async () => {
    const id = await control.createLive();
    await killAt(control, "save_template.intent", `POST /v1/sessions/${id}/templates`, { name: "intent" });
    await untilFree(id);
    expect(snapshotsOf(id, "tpl_")).toEqual([]);
    const again = await control.ask(`POST /v1/sessions/${id}/templates`, { body: { name: "intent" } });
    expect(again.body.versions).toEqual(["1"]);
  });

  test("save_template.commit: the version exists", async () => {
    const id = await control.createLive();
    await killAt(control, "save_template.commit", `POST /v1/sessions/${id}/templates`, { name: "commit" });
    expect((await rowOf(id)).op).toBe(null);
    expect((await control.ask("GET /v1/templates/commit")).body.versions).toEqual(["1"]);
    expect(await control.createLive({ template: "commit" })).toEqual(expect.any(String));
  });
});

test("killed while the new machine of a restore is loaded: the old one keeps running, the new one is removed", async () => {
  const id = await control.createLive();
  const chk = await checkpointOf(id);
  const loading = Promise.withResolvers<void>();
  const loaded = Promise.withResolvers<void>();
  control.node.onStart = () => {
    loading.resolve();
    return loaded.promise;
  };
  await withMortal(control, "none", async (mortal) => {
    const asked = mortal.ask(`POST /v1/sessions/${id}/restore`, { checkpoint_id: chk });
    await loading.promise;
    mortal.kill();
    loaded.resolve();
    expect(await asked).toBe("broken");
  });
  control.node.onStart = () => {};
  // Claims lapse without help here.
  await untilTakenOver(id);
  expect(await rowOf(id)).toMatchObject({ state: "live", incarnation: 1 });
  await eventually(() => expect(machinesOf(id)).toEqual([["1", "running"]]));
});

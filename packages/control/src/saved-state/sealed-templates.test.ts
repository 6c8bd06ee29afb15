/** Templates of sessions whose memory may contain secrets: their disk alone, sealed with the state key of the session. */
import type { SnapshotSpec } from "@vivarium/contract/node";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";

let control: Control;
beforeAll(async () => {
  control = await startControl();
});
afterEach(async () => {
  control.node.onSnapshot = () => {};
  await control.destroyAll();
  await control.ask("DELETE /v1/templates/tools");
  await control.sql.query("delete from template_names");
});
afterAll(() => control.close());

const SECRETS = { secrets: { TOKEN: "x" } };
const save = (id: string) => control.ask(`POST /v1/sessions/${id}/templates`, { body: { name: "tools" } });
const machineOf = (id: string, incarnation = 1) => control.node.machines.get(`${id}-${incarnation}`);
const kept = () =>
  [...control.node.snapshots.values()].filter(({ snapshot_id: id }) => id.startsWith("tpl_"));
const rowOf = async () => (await control.sql.query("select * from templates")).rows[0];
const post = async (path: string, body?: object) => {
  const answer = await control.ask(`POST /v1/${path}`, { body });
  expect(answer.status, answer.text).toBeLessThan(300);
  return answer.body;
};

test("the disk of a live session is saved without memory, and the session runs on", async () => {
  const id = await control.createLive(SECRETS);
  expect((await save(id)).body).toMatchObject({ kind: "user", status: "ready", memory: false });
  expect(kept()).toMatchObject([
    { spec: { machine_id: `${id}-1`, after: "continue", memory: false }, stateKey: machineOf(id)?.stateKey },
  ]);
  expect((await control.exec(id)).status).toBe(200);
  expect((await control.ask("GET /v1/templates/tools")).body).toMatchObject({ memory: false });
});

test("the disk of a paused session is saved, and the session stays paused", async () => {
  const id = await control.createLive(SECRETS);
  await post(`sessions/${id}/pause`);
  expect((await save(id)).body).toMatchObject({ memory: false });
  const source = expect.stringMatching(/^pau_/);
  expect(kept()).toMatchObject([{ spec: { snapshot_id: source, memory: false } }]);
  expect((await control.ask(`GET /v1/sessions/${id}`)).body.state).toBe("paused");
});

test("its sessions are sealed with its key, and have no secrets; their memory is saved with a template", async () => {
  const id = await control.createLive(SECRETS);
  const key = machineOf(id)?.stateKey;
  await save(id);
  await control.ask(`DELETE /v1/sessions/${id}`);
  const row = await rowOf();
  expect(row.state_key.toString("latin1")).not.toContain(
    Buffer.from(key ?? "", "base64url").toString("latin1"),
  );

  const started = await control.createLive({ template: "tools" });
  expect(machineOf(started)).toMatchObject({ stateKey: key, spec: { snapshot_id: row.id } });
  expect(machineOf(started)?.spec.resume).toBeUndefined();
  expect((await control.ask(`GET /v1/sessions/${started}`)).body).not.toHaveProperty("secret_names");
  await post(`sessions/${started}/pause`);
  await post(`sessions/${started}/resume`);
  expect(machineOf(started, 2)?.stateKey).toBe(key);
  const { checkpoint_id: chk } = await post(`sessions/${started}/checkpoints`);
  const { session_id: other } = await post(`checkpoints/${chk}/sessions`);
  const { children } = await post(`sessions/${other}/fork`);
  for (const heir of [other, children[0]]) expect(machineOf(heir)?.stateKey).toBe(key);
  await control.ask(`DELETE /v1/checkpoints/${chk}`);

  expect((await save(started)).body).toMatchObject({ version: "2", memory: true });
  const again = await control.createLive({ template: "tools@2" });
  expect(machineOf(again)?.stateKey).toBe(key);
  const own = await control.createLive({ template: "tools@2", ...SECRETS });
  expect(machineOf(own)?.stateKey).toBe(key);
  expect((await save(own)).body).toMatchObject({ version: "3", memory: false });
  const run = await control.ask("POST /v1/sessions/exec", {
    body: { language: "python", code: "1", template: "tools@1" },
  });
  expect(run.status).toBe(200);
});

test("a template of a session without secrets has its memory and no key", async () => {
  const id = await control.createLive({ env: { MODE: "x" } });
  expect((await save(id)).body).toMatchObject({ memory: true });
  expect(await rowOf()).toMatchObject({ kek_id: null, data_key: null, state_key: null });
  expect(kept()[0]?.spec).not.toHaveProperty("memory");
});

test("the end of a template destroys its copy of the key", async () => {
  const id = await control.createLive(SECRETS);
  await save(id);
  await control.ask("DELETE /v1/templates/tools");
  expect(
    (await control.sql.query("select count(*)::int from templates where state_key is not null")).rows,
  ).toEqual([{ count: 0 }]);
  await eventually(() => expect(kept()).toEqual([]));
});

test("nothing is kept of a node that saves memory all the same", async () => {
  const id = await control.createLive(SECRETS);
  // As a node of an earlier version, which does not know the field.
  control.node.onSnapshot = (_, spec: SnapshotSpec) => void Object.assign(spec, { memory: undefined });
  const answer = await save(id);
  expect([answer.status, answer.body.code]).toEqual([503, "session_unavailable"]);
  expect(await rowOf()).toBeUndefined();
  await eventually(() => expect(kept()).toEqual([]));
  expect((await control.exec(id)).status).toBe(200);
});

test("without its key-encryption key no template is saved or started, and no operation is left", async () => {
  const id = await control.createLive(SECRETS);
  const hide = (table: string, kek: string) =>
    control.sql.query(`update ${table} set kek_id = $1 where kek_id is not null`, [kek]);
  await hide("sessions", "kek_77");
  expect((await save(id)).status).toBe(503);
  const { rows } = await control.sql.query("select op from sessions where id = $1", [id]);
  expect(rows).toEqual([{ op: null }]);
  await hide("sessions", "kek_1");
  await save(id);
  await hide("templates", "kek_77");
  const refused = await control.ask("POST /v1/sessions", { body: { template: "tools" } });
  expect(refused).toMatchObject({ status: 503, body: { error: expect.stringContaining("kek_77") } });
  await hide("templates", "kek_1");
  await control.createLive({ template: "tools" });
});

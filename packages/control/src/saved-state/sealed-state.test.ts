/** State keys: made with a session that may hold secrets, and brought with the calls that need them. */
import { createHash } from "node:crypto";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type Control, eventually, KEKS, startControl } from "../../test-support/control.ts";

let control: Control;
beforeAll(async () => {
  control = await startControl();
});
afterEach(() => control.destroyAll());
afterAll(() => control.close());

const SECRETS = { secrets: { TOKEN: "x" } };
const create = (body: object = SECRETS) => control.createLive(body);
const post = async (path: string, body?: object) => {
  const answer = await control.ask(`POST /v1/${path}`, { body });
  expect(answer.status, answer.text).toBeLessThan(300);
  return answer.body;
};
const keyOf = (id: string, incarnation = 1) => control.node.machines.get(`${id}-${incarnation}`)?.stateKey;
const storedKey = async (id: string) => {
  const { rows } = await control.sql.query("select state_key, data_key from sessions where id = $1", [id]);
  return rows[0];
};

test("a session with secrets has a key of its own, which the database has sealed", async () => {
  const ids = [await create(), await create()];
  const keys = ids.map((id) => keyOf(id) ?? "");
  for (const key of keys) expect(key).toMatch(/^[\w-]{43}$/);
  expect(new Set(keys).size).toBe(2);
  const { rows } = await control.sql.query("select s::text as row from sessions s");
  const text = rows.map(({ row }) => row).join("\n");
  for (const key of keys) {
    for (const form of ["hex", "base64", "base64url"] as const)
      expect(text).not.toContain(Buffer.from(key, "base64url").toString(form));
  }
  // The search finds what is there.
  expect(text).toContain((await storedKey(ids[0] ?? "")).state_key.toString("hex"));
});

test("a session with Connections has one, too", async () => {
  const authentication = { type: "bearer", secret: "x" };
  const allow = { methods: ["GET"], paths: ["/*"] };
  const connections = [{ name: "web", origin: "https://example.com", authentication, allow }];
  expect((await storedKey(await control.create({ connections }))).state_key).toEqual(expect.any(Buffer));
});

test.each([
  ["nothing", {}],
  ["variables", { env: { MODE: "a" } }],
])("a session with %s has none, and neither has what is saved of it", async (_title, body) => {
  const id = await create(body);
  expect(keyOf(id)).toBeUndefined();
  expect((await storedKey(id)).state_key).toBeNull();
  const { checkpoint_id: chk } = await post(`sessions/${id}/checkpoints`);
  await post(`sessions/${id}/pause`);
  for (const snapshot of control.node.snapshots.values()) expect(snapshot.stateKey).toBeUndefined();
  const { session_id: other } = await post(`checkpoints/${chk}/sessions`);
  expect(keyOf(other)).toBeUndefined();
});

test("a wake, a checkpoint, a restore and a fork have the session's key", async () => {
  const id = await create();
  const key = keyOf(id);
  await post(`sessions/${id}/pause`);
  const { checkpoint_id: ofPaused } = await post(`sessions/${id}/checkpoints`);
  await post(`sessions/${id}/resume`);
  expect(keyOf(id, 2)).toBe(key);
  const { checkpoint_id: ofLive } = await post(`sessions/${id}/checkpoints`);
  for (const chk of [ofPaused, ofLive]) expect(control.node.snapshots.get(chk)?.stateKey).toBe(key);
  await post(`sessions/${id}/restore`, { checkpoint_id: ofPaused });
  expect(keyOf(id, 3)).toBe(key);
  const { children } = await post(`sessions/${id}/fork`, { count: 2 });
  for (const child of children) {
    expect(keyOf(child)).toBe(key);
    // Sealed with the child's own data key.
    const [own, parents] = [await storedKey(child), await storedKey(id)];
    expect(own.state_key.equals(parents.state_key)).toBe(false);
    expect(own.data_key.equals(parents.data_key)).toBe(false);
  }
});

test("a session from a checkpoint has the checkpoint's key, whose session may have ended", async () => {
  const id = await create();
  const key = keyOf(id);
  const { checkpoint_id: chk } = await post(`sessions/${id}/checkpoints`);
  await control.ask(`DELETE /v1/sessions/${id}`);
  await eventually(async () => expect(await storedKey(id)).toEqual({ state_key: null, data_key: null }));
  const { session_id: started } = await post(`checkpoints/${chk}/sessions`);
  expect(keyOf(started)).toBe(key);
  const again = await create({ from_checkpoint: chk, secrets: { OTHER: "y" } });
  expect(keyOf(again)).toBe(key);
});

test("a session with secrets from a checkpoint without them has a key, and the checkpoint has none", async () => {
  const id = await create({});
  const { checkpoint_id: chk } = await post(`sessions/${id}/checkpoints`);
  const started = await create({ from_checkpoint: chk, ...SECRETS });
  const key = keyOf(started);
  expect(key).toBeDefined();
  await post(`sessions/${started}/pause`);
  await post(`sessions/${started}/resume`);
  expect(keyOf(started, 2)).toBe(key);
  expect(control.node.snapshots.get(chk)?.stateKey).toBeUndefined();
});

test("a session of an earlier version stays as it is, and a fork of it is sealed from its next save on", async () => {
  const id = await create();
  await control.sql.query("update sessions set state_key = null where id = $1", [id]);
  Object.assign(control.node.machines.get(`${id}-1`) ?? {}, { stateKey: undefined });
  await post(`sessions/${id}/pause`);
  await post(`sessions/${id}/resume`);
  expect(keyOf(id, 2)).toBeUndefined();
  const { children } = await post(`sessions/${id}/fork`);
  expect(keyOf(children[0])).toBeDefined();
});

test("without its key-encryption key a session is neither paused nor woken, and works on once it is back", async () => {
  const id = await create();
  const { kek_id: kek } = (await control.sql.query("select kek_id from sessions where id = $1", [id]))
    .rows[0];
  const hide = (name: string) =>
    control.sql.query("update sessions set kek_id = $2 where id = $1", [id, name]);
  await hide("kek_77");
  const refused = await control.ask(`POST /v1/sessions/${id}/pause`);
  expect(refused).toMatchObject({ status: 503 });
  expect(refused.text).toContain("kek_77");
  await hide(kek);
  await post(`sessions/${id}/pause`);
  await hide("kek_77");
  expect(await control.ask(`POST /v1/sessions/${id}/resume`)).toMatchObject({ status: 503 });
  await hide(kek);
  await post(`sessions/${id}/resume`);
  expect(KEKS).toContain(kek);
});

test("a state that was sealed with another key is not woken, and stays", async () => {
  const id = await create();
  await post(`sessions/${id}/pause`);
  const { rows } = await control.sql.query("select snapshot_id from sessions where id = $1", [id]);
  const snapshot = control.node.snapshots.get(rows[0].snapshot_id);
  const key = snapshot?.stateKey ?? "";
  Object.assign(snapshot ?? {}, { stateKey: createHash("sha256").digest("base64url") });
  const refused = await control.ask(`POST /v1/sessions/${id}/resume`);
  expect(refused).toMatchObject({ status: 500, body: { code: "internal" } });
  expect(refused.text).not.toContain(key);
  Object.assign(snapshot ?? {}, { stateKey: key });
  await post(`sessions/${id}/resume`);
});

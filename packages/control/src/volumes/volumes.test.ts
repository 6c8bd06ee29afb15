import { Refusal } from "@vivarium/contract/test-support/node";
import { randomId } from "@vivarium/kit/id";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Ask, type Control, eventually, startControl } from "../../test-support/control.ts";

let control: Control;
beforeAll(async () => {
  control = await startControl({ volumeSizes: { usualGb: 1, maxGb: 10, orgGb: 12 } });
});
beforeEach(() => {
  control.node.onVolume = () => {};
  control.node.onDelete = () => {};
});
afterEach(async () => {
  await control.destroyAll();
  await eventually(async () => {
    for (const { id } of (await ask("GET /v1/volumes")).body.volumes)
      expect((await ask(`DELETE /v1/volumes/${id}`)).status).toBe(204);
    expect(control.node.volumes.size).toBe(0);
  });
});
afterAll(() => control.close());

const ask = (call: string, more: Ask = {}) => control.ask(call, more);
const make = async (body?: object, key?: string) => {
  const answer = await ask("POST /v1/volumes", { body, ...(key !== undefined && { key }) });
  expect([answer.status, answer.text]).toEqual([201, answer.text]);
  return answer.body.id as string;
};
const read = async (id: string) => (await ask(`GET /v1/volumes/${id}`)).body;
const isFree = (id: string) =>
  eventually(async () => expect(await read(id)).toMatchObject({ attached: false }));
const heldBy = (id: string) => control.node.volumes.get(id)?.machine_id;
const rowsOf = async (text: string) => (await control.sql.query(text)).rows;
const eventsOf = async (id: string) =>
  (await rowsOf("select type, session_id, data from events order by seq"))
    .filter(({ data }) => data.volume_id === id)
    .map(({ type }) => type);

describe("a volume", () => {
  test("is made empty and read, with the sizes that the operator chose", async () => {
    const id = await make();
    expect(id).toMatch(/^vol_[a-z0-9]{21}$/);
    const record = { id, size_gb: 1, created_at: expect.stringMatching(/Z$/), attached: false };
    expect(await read(id)).toEqual(record);
    const larger = await make({ size_gb: 3 });
    expect((await ask("GET /v1/volumes")).body).toEqual({
      volumes: [expect.objectContaining({ id: larger, size_gb: 3 }), record],
    });
    expect(control.node.volumes.get(larger)).toMatchObject({ size_gb: 3 });
    expect((await ask("GET /v1/org")).body.limits).toMatchObject({
      ...{ volume_gb_used: 4, volume_gb_total: 12, volume_max_gb: 10 },
    });
  });

  test.each([
    [{ size_gb: 0 }, 400, "validation"],
    [{ size_gb: 1.5 }, 400, "validation"],
    [{ size_gb: "1" }, 400, "validation"],
    [{ size_gb: 11 }, 400, "validation"],
  ])("of %j is refused", async (body, status, code) => {
    const answer = await ask("POST /v1/volumes", { body });
    expect([answer.status, answer.body.code]).toEqual([status, code]);
    expect(answer.body.error).toMatch(/^size_gb: must be/);
  });

  test("over the organisation's quota is refused, also two that are asked for at once, or one that grows", async () => {
    await make({ size_gb: 10 });
    const both = await Promise.all([1, 2].map(() => ask("POST /v1/volumes", { body: { size_gb: 2 } })));
    expect(both.map(({ status }) => status).toSorted()).toEqual([201, 409]);
    const { id } = both.find(({ status }) => status === 201)?.body ?? {};
    const grown = await ask(`PATCH /v1/volumes/${id}`, { body: { size_gb: 3 } });
    expect([grown.status, grown.body.code]).toEqual([409, "conflict"]);
  });

  test("grows and never shrinks", async () => {
    const id = await make({ size_gb: 2 });
    for (const size_gb of [1, 2, 11, null, undefined, "3"]) {
      const answer = await ask(`PATCH /v1/volumes/${id}`, { body: { size_gb } });
      expect([size_gb, answer.status]).toEqual([size_gb, 400]);
    }
    const answer = await ask(`PATCH /v1/volumes/${id}`, { body: { size_gb: 4 } });
    expect([answer.status, answer.body.size_gb]).toEqual([200, 4]);
    // From the next session on.
    expect(control.node.volumes.get(id)).toMatchObject({ size_gb: 2 });
    await control.createLive({ volume_id: id });
    expect(control.node.volumes.get(id)).toMatchObject({ size_gb: 4 });
  });

  test("that the node cannot make leaves nothing", async () => {
    control.node.onVolume = () => {
      throw new Refusal("disk_pressure", "full");
    };
    const answer = await ask("POST /v1/volumes");
    expect([answer.status, answer.body.code]).toEqual([503, "node_disk_pressure"]);
    expect((await ask("GET /v1/volumes")).body.volumes).toEqual([]);
    control.node.onVolume = () => {};
    await eventually(async () => expect(await rowsOf("select id from volumes")).toEqual([]));
  });

  test("that is deleted while the node is away is gone at once, and from the node later", async () => {
    const id = await make();
    await control.node.goDown();
    expect((await ask(`DELETE /v1/volumes/${id}`)).status).toBe(204);
    expect((await ask(`GET /v1/volumes/${id}`)).status).toBe(404);
    expect(control.node.volumes.has(id)).toBe(true);
    await control.node.listen();
    await eventually(() => expect(control.node.volumes.has(id)).toBe(false));
    await eventually(async () => expect(await rowsOf("select id from volumes")).toEqual([]));
    expect(await eventsOf(id)).toEqual(["volume.created", "volume.deleted"]);
  });

  test("whose maker died is taken back", async () => {
    const [{ id: orgId }] = await rowsOf("select id from orgs where name = 'default'");
    const id = `vol_${randomId()}`;
    control.node.volumes.set(id, { volume_id: id, size_gb: 1 });
    await control.sql.query(
      "insert into volumes (id, org_id, size_gb, created_at) values ($1, $2, 1, now() - interval '3 minutes')",
      [id, orgId],
    );
    await eventually(() => expect(control.node.volumes.has(id)).toBe(false));
  });

  test("of another project is not found for a key that is bound to one", async () => {
    const [{ id: orgId }] = await rowsOf("select id from orgs where name = 'default'");
    const projectId = `prj_${randomId()}`;
    await control.sql.query("insert into projects (id, org_id, name) values ($1, $2, 'bound')", [
      projectId,
      orgId,
    ]);
    const key = await control.addKey({ orgId, scopedProjectId: projectId });
    const outside = await make();
    const inside = await make({}, key);
    expect((await ask("GET /v1/volumes", { key })).body.volumes).toMatchObject([{ id: inside }]);
    expect((await ask(`GET /v1/volumes/${outside}`, { key })).status).toBe(404);
    const created = await ask("POST /v1/sessions", { key, body: { volume_id: outside } });
    expect([created.status, created.body.code]).toEqual([404, "not_found"]);
    expect((await ask("GET /v1/volumes")).body.volumes).toHaveLength(2);
  });
});

describe("a session with a volume", () => {
  test("has it alone until it has ended", async () => {
    const volume_id = await make();
    const id = await control.createLive({ volume_id });
    expect((await ask(`GET /v1/sessions/${id}`)).body.volume_id).toBe(volume_id);
    expect(await read(volume_id)).toMatchObject({ attached: true, session_id: id });
    expect(heldBy(volume_id)).toBe(`${id}-1`);
    const second = await ask("POST /v1/sessions", { body: { volume_id } });
    expect([second.status, second.body.code]).toEqual([409, "conflict"]);
    expect(second.body.error).toContain(id);
    const run = { language: "python", code: "1", volume_id };
    expect((await ask("POST /v1/sessions/exec", { body: run })).status).toBe(409);
    expect((await ask(`DELETE /v1/volumes/${volume_id}`)).status).toBe(409);
    expect((await ask(`PATCH /v1/volumes/${volume_id}`, { body: { size_gb: 2 } })).status).toBe(409);
    expect((await ask(`DELETE /v1/sessions/${id}`)).status).toBe(204);
    expect(await read(volume_id)).toMatchObject({
      attached: false,
      last_saved_at: expect.stringMatching(/Z$/),
    });
    expect(heldBy(volume_id)).toBeUndefined();
    const ended = (await ask("GET /v1/sessions?state=ended")).body.sessions;
    expect(ended).toContainEqual(expect.objectContaining({ session_id: id, volume_id }));
    await control.createLive({ volume_id });
  });

  test("one of two that are made at once has it", async () => {
    const volume_id = await make();
    const both = await Promise.all([1, 2].map(() => ask("POST /v1/sessions", { body: { volume_id } })));
    expect(both.map(({ status }) => status).toSorted()).toEqual([200, 409]);
  });

  test("keeps it while it is paused, and wakes only once the machine of before is gone", async () => {
    const volume_id = await make();
    const id = await control.createLive({ volume_id });
    const gone = Promise.withResolvers<void>();
    control.node.onDelete = () => gone.promise;
    expect((await ask(`POST /v1/sessions/${id}/pause`)).status).toBe(200);
    expect((await ask(`DELETE /v1/volumes/${volume_id}`)).status).toBe(409);
    const waking = ask(`POST /v1/sessions/${id}/resume`);
    await eventually(() => expect(control.node.stopping.size).toBe(1));
    expect(control.node.starting.size).toBe(0);
    expect(heldBy(volume_id)).toBe(`${id}-1`);
    gone.resolve();
    expect((await waking).status).toBe(200);
    expect(heldBy(volume_id)).toBe(`${id}-2`);
    await eventually(async () => expect(await eventsOf(volume_id)).toContain("volume.saved"));
    expect(await read(volume_id)).toMatchObject({ attached: true, session_id: id });
  });

  test("is not forked, and a session from its checkpoint has none", async () => {
    const volume_id = await make();
    const id = await control.createLive({ volume_id });
    const fork = await ask(`POST /v1/sessions/${id}/fork`);
    expect([fork.status, fork.body.code]).toEqual([409, "conflict"]);
    expect(fork.body.error).toContain("volume");
    const { checkpoint_id } = (await ask(`POST /v1/sessions/${id}/checkpoints`)).body;
    const child = await ask(`POST /v1/checkpoints/${checkpoint_id}/sessions`);
    expect([child.status, child.body.volume_id]).toEqual([200, undefined]);
  });

  test("keeps it when it is restored to a checkpoint", async () => {
    const volume_id = await make();
    const id = await control.createLive({ volume_id });
    const { checkpoint_id } = (await ask(`POST /v1/sessions/${id}/checkpoints`)).body;
    const restored = await ask(`POST /v1/sessions/${id}/restore`, { body: { checkpoint_id } });
    expect([restored.status, restored.body.volume_id]).toEqual([200, volume_id]);
    expect(heldBy(volume_id)).toBe(`${id}-2`);
  });

  test("that fails gives it back", async () => {
    const volume_id = await make();
    control.node.onStart = (_id, { volume }) => {
      if (volume) throw new Refusal("volume_unfit", "too old");
    };
    const id = await control.create({ volume_id });
    const failed = await control.until(id, "failed");
    control.node.onStart = () => {};
    expect(failed.body.status_reason).toMatch(/can have no volume$/);
    await isFree(volume_id);
  });

  test("whose lifetime is over gives it back, though it is not deleted yet", async () => {
    const volume_id = await make();
    const id = await control.createLive({ volume_id, max_lifetime_ms: 3_600_000 });
    await control.sql.query(
      "update sessions set created_at = created_at - interval '2 hours', due_at = now() where id = $1",
      [id],
    );
    await control.until(id, "lifetime_expired");
    await isFree(volume_id);
  });

  test("whose row is gone gives it back", async () => {
    const volume_id = await make();
    await control.sql.query("update volumes set session_id = $1 where id = $2", [randomId(), volume_id]);
    await isFree(volume_id);
  });

  test("that ends while the node is away keeps it until no machine has it", async () => {
    const volume_id = await make();
    const id = await control.createLive({ volume_id });
    await control.node.goDown();
    const deleted = ask(`DELETE /v1/sessions/${id}`);
    await eventually(async () => expect((await ask(`GET /v1/sessions/${id}`)).status).toBe(404));
    expect(await read(volume_id)).toMatchObject({ attached: true, session_id: id });
    await control.node.listen();
    expect((await deleted).status).toBe(204);
    await isFree(volume_id);
    expect(heldBy(volume_id)).toBeUndefined();
  });
});

test("a stateless run has its volume, and gives it back", async () => {
  const volume_id = await make();
  let holder: string | undefined;
  control.node.onExec = (_call, output) => {
    holder = heldBy(volume_id);
    return output().exit();
  };
  const run = await ask("POST /v1/sessions/exec", { body: { language: "python", code: "1", volume_id } });
  expect([run.status, run.body.phase]).toEqual([200, "done"]);
  expect(holder).toBe(`${run.body.session_id}-1`);
  await isFree(volume_id);
});

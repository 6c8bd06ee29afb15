/** Archives of saved states, with a node that packs and unpacks files of its own. */
import { writeFileSync } from "node:fs";
import path from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { ArchiveWorld, WITHIN_MS } from "../../test-support/archive-world.ts";
import { type Control, eventually, startControl } from "../../test-support/control.ts";

let world: ArchiveWorld;
let control: Control;
beforeAll(async () => {
  world = await ArchiveWorld.start();
  control = world.control;
});
afterEach(() => world.clear());
afterAll(() => control.close());

const retry = (id: string) => control.ask(`POST /v1/sessions/${id}/archive/retry`);

test("a pause is archived, with an event, and its record says so", async () => {
  const id = await world.pausedWith("kept");
  const { archive, snapshot_tier } = await world.untilArchived(id);
  expect(Date.parse(archive.uploaded_at)).toBeGreaterThan(0);
  expect(snapshot_tier).toBe("hot");
  const [row] = await world.rows("select * from archives where session_id = $1 and kind = 'pause'", [id]);
  expect(row.base_archive).not.toBeNull();
  const events = await world.rows(
    "select type, data from events where session_id = $1 and type like 'archive.%'",
    [id],
  );
  expect(events).toEqual([
    { type: "archive.complete", data: { archive_id: row.id, size_bytes: expect.any(Number) } },
  ]);
});

test("the second archive of a session replaces the first once it is complete", async () => {
  const id = await world.pausedWith("first");
  await world.untilArchived(id);
  await control.ask(`PUT /v1/sessions/${id}/files`, { body: { path: "content", content: "second" } });
  await control.ask(`POST /v1/sessions/${id}/pause`);
  await world.untilArchived(id);
  await eventually(async () =>
    expect(await world.rows("select snapshot_id from archives where session_id = $1", [id])).toEqual([
      { snapshot_id: await world.snapshotOf(id) },
    ]),
  );
});

test("a session that is paused wakes from the store on a node with an empty data directory", async () => {
  const id = await world.pausedWith("from afar");
  await world.untilArchived(id);
  await world.withEmptyNode(async (other) => {
    const read = await other.ask(`GET /v1/sessions/${id}/files?path=content`);
    expect([read.status, read.text]).toEqual([200, expect.stringContaining("from afar")]);
    expect(await world.record(id, other)).toMatchObject({ state: "live" });
    expect(other.node.snapshots.size).toBeGreaterThan(1);
    await other.ask(`DELETE /v1/sessions/${id}`);
  });
});

test("a session starts from a checkpoint that no node has", async () => {
  const id = await world.pausedWith("of a checkpoint");
  const { body: checkpoint } = await control.ask(`POST /v1/sessions/${id}/checkpoints`);
  const cid = checkpoint.checkpoint_id;
  await eventually(
    async () =>
      expect(await world.rows("select state from archives where snapshot_id = $1", [cid])).toEqual([
        { state: "complete" },
      ]),
    WITHIN_MS,
  );
  await world.withEmptyNode(async (other) => {
    const started = await other.ask(`POST /v1/checkpoints/${cid}/sessions`);
    expect(started.body).toMatchObject({ state: "live" });
    const read = await other.ask(`GET /v1/sessions/${started.body.session_id}/files?path=content`);
    expect(read.text).toContain("of a checkpoint");
    await other.ask(`DELETE /v1/sessions/${started.body.session_id}`);
  });
  await control.ask(`DELETE /v1/checkpoints/${cid}`);
  await eventually(async () =>
    expect(await world.rows("select 1 from archives where snapshot_id = $1", [cid])).toEqual([]),
  );
});

test("a damaged archive leaves the session paused, with an error that does not ask for another attempt", async () => {
  const id = await world.pausedWith("damaged");
  await world.untilArchived(id);
  const [{ prefix }] = await world.rows(
    "select org_id || '/archives/' || space_id || '/' as prefix from archives where session_id = $1",
    [id],
  );
  for (const name of world.objectsWith(prefix)) writeFileSync(path.join(world.objectsDir, name), "nonsense");
  await world.withEmptyNode(async (other) => {
    const answer = await other.ask(`POST /v1/sessions/${id}/resume`);
    expect(answer).toMatchObject({ status: 500, body: { code: "internal" } });
    expect(answer.body.error).toContain("archive");
    expect(await world.record(id, other)).toMatchObject({ state: "paused" });
  });
});

describe("a failed archive", () => {
  test("says why, and is complete after a retry", async () => {
    control.node.onPack = (snapshotId) => {
      if (snapshotId.startsWith("pau_")) throw new Error("the disk is on fire");
    };
    const id = await world.pausedWith("again");
    await control.sql.query("update archives set tries = 5 where session_id = $1", [id]);
    const { archive } = await world.untilArchived(id, "failed");
    expect(archive.detail).toContain("on fire");
    control.node.onPack = () => {};
    const answer = await retry(id);
    expect([answer.status, answer.body]).toEqual([202, { status: "pending" }]);
    await world.untilArchived(id);
    // An upload is counted once its row is written.
    await eventually(async () => {
      const metrics = await control.app.meter.registry.metrics();
      for (const outcome of ["complete", "failed"])
        expect(metrics).toMatch(new RegExp(`vivarium_archive_uploads_total.outcome="${outcome}". [1-9]`));
    }, WITHIN_MS);
    expect(await retry(id)).toMatchObject({ status: 409, body: { code: "conflict" } });
  });

  test("is tried again by itself once its hour is over", async () => {
    control.node.onPack = (snapshotId) => {
      if (snapshotId.startsWith("pau_")) throw new Error("not now");
    };
    const id = await world.pausedWith("later");
    await control.sql.query("update archives set tries = 5 where session_id = $1", [id]);
    await world.untilArchived(id, "failed");
    control.node.onPack = () => {};
    await control.sql.query(
      "update archives set failed_at = now() - interval '61 minutes' where session_id = $1",
      [id],
    );
    await world.untilArchived(id);
  });

  test("cannot be retried for a session that is live, or whose state is not on its node", async () => {
    const live = await control.createLive();
    expect(await retry(live)).toMatchObject({ status: 409, body: { code: "conflict" } });
    const id = await world.pausedWith("lost");
    await world.untilArchived(id);
    await control.sql.query("delete from archives where session_id = $1", [id]);
    await control.node.goDown();
    expect(await retry(id)).toMatchObject({ status: 503, body: { code: "session_node_unavailable" } });
    await control.node.listen();
    control.node.snapshots.delete(await world.snapshotOf(id));
    expect(await retry(id)).toMatchObject({ status: 409, body: { code: "conflict" } });
  });
});

test("a session that ends while its state is packed leaves no archive and no object of its own", async () => {
  let begun = () => {};
  const isPacking = new Promise<void>((resolve) => {
    begun = resolve;
  });
  let go = () => {};
  const mayGoOn = new Promise<void>((resolve) => {
    go = resolve;
  });
  control.node.onPack = async (snapshotId) => {
    if (!snapshotId.startsWith("pau_")) return;
    begun();
    await mayGoOn;
  };
  const id = await world.pausedWith("gone soon");
  await isPacking;
  const [{ space_id: space }] = await world.rows("select space_id from archives where session_id = $1", [id]);
  const destroyed = control.ask(`DELETE /v1/sessions/${id}`);
  await eventually(async () =>
    expect(await world.rows("select 1 from archives where session_id = $1", [id])).toEqual([]),
  );
  go();
  await destroyed;
  await eventually(() => expect(world.objectsWith(space)).toEqual([]), WITHIN_MS);
});

test("a pause without a job gets one, and two acknowledgements of one upload are one event", async () => {
  const id = await world.pausedWith("no job");
  await world.untilArchived(id);
  await control.sql.query(
    `update archives set state = 'pending', contents = null, chunks = null, uploaded_at = null where session_id = $1`,
    [id],
  );
  await world.untilArchived(id);
  const events = await world.rows(
    "select 1 from events where session_id = $1 and type = 'archive.complete'",
    [id],
  );
  expect(events).toHaveLength(2);
});

test("without a key-encryption key, or unless it is asked for, nothing is archived", async () => {
  const plain = await startControl();
  const id = await plain.createLive();
  const paused = await plain.ask(`POST /v1/sessions/${id}/pause`);
  expect(paused.body).toMatchObject({ archive: { status: "unavailable" }, snapshot_tier: "hot" });
  expect(await plain.ask(`POST /v1/sessions/${id}/archive/retry`)).toMatchObject({
    status: 503,
    body: { code: "archive_unavailable" },
  });
  expect((await plain.sql.query("select 1 from archives")).rows).toEqual([]);
  await plain.close();
});

describe("a service that requires durable pauses", () => {
  let strict: Control;
  beforeAll(async () => {
    strict = await startControl({ hasArchives: true, requireDurablePause: true });
  });
  afterAll(() => strict.close());

  test("answers a pause once its archive is complete", async () => {
    const id = await strict.createLive();
    const { body } = await strict.ask(`POST /v1/sessions/${id}/pause`);
    expect(body).toMatchObject({ state: "paused", archive: { status: "complete" } });
  });

  test("keeps a session live whose archive fails, says why, and pauses it at another attempt", async () => {
    const id = await strict.createLive();
    await strict.exec(id, ["sh", "-c", "echo before > file"]);
    strict.node.onPack = async (snapshotId) => {
      if (!snapshotId.startsWith("pau_")) return;
      // The last attempt of a bounded number.
      await strict.sql.query("update archives set tries = 6 where snapshot_id = $1", [snapshotId]);
      throw new Error("the store is away");
    };
    await strict.sql.query("update archives set tries = 5");
    const refused = strict.ask(`POST /v1/sessions/${id}/pause`);
    await eventually(async () => {
      const { rowCount } = await strict.sql.query(
        "update archives set tries = 6 where session_id = $1 and state = 'pending'",
        [id],
      );
      if (rowCount === 0) expect((await refused).status).toBe(503);
      else throw new Error("not refused yet");
    }, WITHIN_MS);
    expect((await refused).body.code).toBe("archive_unavailable");
    const live = await world.record(id, strict);
    expect(live).toMatchObject({ state: "live", status_detail: expect.stringContaining("not paused") });
    const events = await strict.sql.query("select data from events where type = 'session.pause_refused'");
    expect(events.rows).toMatchObject([{ data: { op: "pause", code: "archive_unavailable" } }]);
    expect((await strict.exec(id, ["true"])).status).toBe(200);
    strict.node.onPack = () => {};
    const { body } = await strict.ask(`POST /v1/sessions/${id}/pause`);
    expect(body).toMatchObject({ state: "paused", archive: { status: "complete" } });
    expect(body.status_detail).toBeUndefined();
  });
});

test("objects of archives are sealed: the store sees nothing of a session's content", async () => {
  const id = await world.pausedWith("hunter2 hunter2 hunter2");
  await world.untilArchived(id);
  const store = await world.openStore();
  for await (const { key } of store.list("")) {
    const fetched = await store.get(key);
    for await (const piece of fetched?.content ?? [])
      expect(Buffer.from(piece).includes("hunter2")).toBe(false);
  }
  await store.close();
});

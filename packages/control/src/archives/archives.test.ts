/** Archives of saved states, with a node that packs and unpacks files of its own. */
import { readdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { FakeNode } from "@vivarium/contract/test-support/node";
import { DirectoryStore } from "@vivarium/objects/directory-store";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type Answer, Control, eventually, startControl } from "../../test-support/control.ts";
import { silentLog } from "../../test-support/database.ts";
import { createApp } from "../app.ts";
import { openDatabase } from "../db/pool.ts";
import { Keyring } from "../secrets/keyring.ts";
import { readBackArchives } from "./read-back.ts";
import { removeOrphanChunks } from "./remove-objects.ts";
import { leaseSpace, releaseSpace } from "./store.ts";

const WITHIN_MS = 60_000;
let control: Control;
beforeAll(async () => {
  control = await startControl({ hasArchives: true });
});
afterEach(async () => {
  control.node.onPack = () => {};
  control.node.onUnpack = () => {};
  await control.destroyAll();
});
afterAll(() => control.close());

const record = async (id: string, by = control) => (await by.ask(`GET /v1/sessions/${id}`)).body;
const retry = (id: string) => control.ask(`POST /v1/sessions/${id}/archive/retry`);
const objectsDir = () => path.join(control.settings.controlDir, "objects", "objects");
const objectNames = () =>
  readdirSync(objectsDir(), { recursive: true })
    .map(String)
    .filter((name) => /\/[0-9a-f]{64}@$/.test(name));
const rows = async (text: string, values: unknown[] = []) => (await control.sql.query(text, values)).rows;
const openStore = () => DirectoryStore.open(path.join(control.settings.controlDir, "objects"));

async function pausedWith(content: string): Promise<string> {
  const id = await control.createLive();
  await control.ask(`PUT /v1/sessions/${id}/files`, { body: { path: "content", content } });
  expect((await control.ask(`POST /v1/sessions/${id}/pause`)).body.state).toBe("paused");
  return id;
}

async function untilArchived(id: string, status = "complete"): Promise<Answer["body"]> {
  return await eventually(async () => {
    const body = await record(id);
    expect(body.archive).toMatchObject({ status });
    return body;
  }, WITHIN_MS);
}

async function snapshotOf(id: string): Promise<string> {
  return (await rows("select snapshot_id from sessions where id = $1", [id]))[0].snapshot_id;
}

/** The service with another node, whose data directory is empty, until `work` is done. */
async function withEmptyNode<T>(work: (other: Control) => Promise<T>): Promise<T> {
  const node = new FakeNode({ isScripted: true });
  await node.listen();
  const settings = { ...control.settings, nodeSocket: node.socketPath };
  const app = await createApp({ ...settings, hasArchives: true } as typeof settings, silentLog);
  const { key, sql } = control;
  try {
    return await work(new Control({ app, node, key, sql, settings }));
  } finally {
    await app.close();
    await node.close();
  }
}

test("a pause is archived, with an event, and its record says so", async () => {
  const id = await pausedWith("kept");
  const { archive, snapshot_tier } = await untilArchived(id);
  expect(Date.parse(archive.uploaded_at)).toBeGreaterThan(0);
  expect(snapshot_tier).toBe("hot");
  const [row] = await rows("select * from archives where session_id = $1 and kind = 'pause'", [id]);
  expect(row.base_archive).not.toBeNull();
  const events = await rows("select type, data from events where session_id = $1 and type like 'archive.%'", [
    id,
  ]);
  expect(events).toEqual([
    { type: "archive.complete", data: { archive_id: row.id, size_bytes: expect.any(Number) } },
  ]);
});

test("the second archive of a session replaces the first once it is complete", async () => {
  const id = await pausedWith("first");
  await untilArchived(id);
  await control.ask(`PUT /v1/sessions/${id}/files`, { body: { path: "content", content: "second" } });
  await control.ask(`POST /v1/sessions/${id}/pause`);
  await untilArchived(id);
  await eventually(async () =>
    expect(await rows("select snapshot_id from archives where session_id = $1", [id])).toEqual([
      { snapshot_id: await snapshotOf(id) },
    ]),
  );
});

test("a session that is paused wakes from the store on a node with an empty data directory", async () => {
  const id = await pausedWith("from afar");
  await untilArchived(id);
  await withEmptyNode(async (other) => {
    const read = await other.ask(`GET /v1/sessions/${id}/files?path=content`);
    expect([read.status, read.text]).toEqual([200, expect.stringContaining("from afar")]);
    expect(await record(id, other)).toMatchObject({ state: "live" });
    expect(other.node.snapshots.size).toBeGreaterThan(1);
    await other.ask(`DELETE /v1/sessions/${id}`);
  });
});

test("a session starts from a checkpoint that no node has", async () => {
  const id = await pausedWith("of a checkpoint");
  const { body: checkpoint } = await control.ask(`POST /v1/sessions/${id}/checkpoints`);
  const cid = checkpoint.checkpoint_id;
  await eventually(
    async () =>
      expect(await rows("select state from archives where snapshot_id = $1", [cid])).toEqual([
        { state: "complete" },
      ]),
    WITHIN_MS,
  );
  await withEmptyNode(async (other) => {
    const started = await other.ask(`POST /v1/checkpoints/${cid}/sessions`);
    expect(started.body).toMatchObject({ state: "live" });
    const read = await other.ask(`GET /v1/sessions/${started.body.session_id}/files?path=content`);
    expect(read.text).toContain("of a checkpoint");
    await other.ask(`DELETE /v1/sessions/${started.body.session_id}`);
  });
  await control.ask(`DELETE /v1/checkpoints/${cid}`);
  await eventually(async () =>
    expect(await rows("select 1 from archives where snapshot_id = $1", [cid])).toEqual([]),
  );
});

test("a damaged archive leaves the session paused, with an error that does not ask for another attempt", async () => {
  const id = await pausedWith("damaged");
  await untilArchived(id);
  const [{ prefix }] = await rows(
    "select org_id || '/archives/' || space_id || '/' as prefix from archives where session_id = $1",
    [id],
  );
  for (const name of objectNames().filter((one) => one.includes(prefix)))
    writeFileSync(path.join(objectsDir(), name), "nonsense");
  await withEmptyNode(async (other) => {
    const answer = await other.ask(`POST /v1/sessions/${id}/resume`);
    expect(answer).toMatchObject({ status: 500, body: { code: "internal" } });
    expect(answer.body.error).toContain("archive");
    expect(await record(id, other)).toMatchObject({ state: "paused" });
  });
});

describe("a failed archive", () => {
  test("says why, and is complete after a retry", async () => {
    control.node.onPack = (snapshotId) => {
      if (snapshotId.startsWith("pau_")) throw new Error("the disk is on fire");
    };
    const id = await pausedWith("again");
    await control.sql.query("update archives set tries = 5 where session_id = $1", [id]);
    const { archive } = await untilArchived(id, "failed");
    expect(archive.detail).toContain("on fire");
    control.node.onPack = () => {};
    const answer = await retry(id);
    expect([answer.status, answer.body]).toEqual([202, { status: "pending" }]);
    await untilArchived(id);
    expect(await retry(id)).toMatchObject({ status: 409, body: { code: "conflict" } });
  });

  test("is tried again by itself once its hour is over", async () => {
    control.node.onPack = (snapshotId) => {
      if (snapshotId.startsWith("pau_")) throw new Error("not now");
    };
    const id = await pausedWith("later");
    await control.sql.query("update archives set tries = 5 where session_id = $1", [id]);
    await untilArchived(id, "failed");
    control.node.onPack = () => {};
    await control.sql.query(
      "update archives set failed_at = now() - interval '61 minutes' where session_id = $1",
      [id],
    );
    await untilArchived(id);
  });

  test("cannot be retried for a session that is live, or whose state is not on its node", async () => {
    const live = await control.createLive();
    expect(await retry(live)).toMatchObject({ status: 409, body: { code: "conflict" } });
    const id = await pausedWith("lost");
    await untilArchived(id);
    await control.sql.query("delete from archives where session_id = $1", [id]);
    await control.node.goDown();
    expect(await retry(id)).toMatchObject({ status: 503, body: { code: "session_node_unavailable" } });
    await control.node.listen();
    control.node.snapshots.delete(await snapshotOf(id));
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
  const id = await pausedWith("gone soon");
  await isPacking;
  const [{ space_id: space }] = await rows("select space_id from archives where session_id = $1", [id]);
  const destroyed = control.ask(`DELETE /v1/sessions/${id}`);
  await eventually(async () =>
    expect(await rows("select 1 from archives where session_id = $1", [id])).toEqual([]),
  );
  go();
  await destroyed;
  await eventually(() => expect(objectNames().filter((name) => name.includes(space))).toEqual([]), WITHIN_MS);
});

test("a pause without a job gets one, and two acknowledgements of one upload are one event", async () => {
  const id = await pausedWith("no job");
  await untilArchived(id);
  await control.sql.query(
    `update archives set state = 'pending', contents = null, chunks = null, uploaded_at = null where session_id = $1`,
    [id],
  );
  await untilArchived(id);
  const events = await rows("select 1 from events where session_id = $1 and type = 'archive.complete'", [id]);
  expect(events).toHaveLength(2);
});

describe("a sweep", () => {
  test("removes what no row names once it is old enough, and nothing that an archive needs", async () => {
    const id = await pausedWith("swept around");
    await untilArchived(id);
    const store = await openStore();
    const db = openDatabase({ url: control.settings.databaseUrl, log: silentLog });
    const [{ space_id: space, org_id: org }] = await rows("select * from archives where session_id = $1", [
      id,
    ]);
    const stray = `${org}/archives/${space}/${"a".repeat(64)}`;
    const unknown = `${org}/archives/spc_${"0".repeat(21)}/${"b".repeat(64)}`;
    for (const key of [stray, unknown]) await store.put(key, Buffer.from("x"));
    const strays = async () => [await store.head(stray), await store.head(unknown)];
    await removeOrphanChunks({ db, objects: store });
    expect(await strays()).toEqual([expect.anything(), expect.anything()]);
    await removeOrphanChunks({ db, objects: store }, -1);
    expect(await strays()).toEqual([undefined, undefined]);
    await store.close();
    await db.destroy();
    await withEmptyNode(async (other) => {
      expect((await other.ask(`POST /v1/sessions/${id}/resume`)).body.state).toBe("live");
      await other.ask(`DELETE /v1/sessions/${id}`);
    });
  });

  test("and a packing never have a space at once", async () => {
    const id = await pausedWith("first one");
    await untilArchived(id);
    const [{ space_id: space }] = await rows("select space_id from archives where session_id = $1", [id]);
    const db = openDatabase({ url: control.settings.databaseUrl, log: silentLog });
    const lease = () => db.transaction().execute((tx) => leaseSpace(tx, space, 600_000));
    const held = await lease();
    expect(held).toBeInstanceOf(Date);
    expect(await lease()).toBeUndefined();
    await control.ask(`POST /v1/sessions/${id}/resume`);
    await control.ask(`POST /v1/sessions/${id}/pause`);
    // The sweeps pass by meanwhile.
    await untilArchived(id, "pending");
    const [{ attempt }] = await rows("select attempt from archives where snapshot_id = $1", [
      await snapshotOf(id),
    ]);
    expect(attempt).toBe(0);
    expect(await lease()).toBeUndefined();
    await releaseSpace(db, space, held as Date);
    await untilArchived(id);
    await db.destroy();
  });
});

describe("a disk with little room", () => {
  const info = () => control.node.info;

  test("lets go of states that are unused, archived and the least recently used, and of no others", async () => {
    const id = await pausedWith("pushed out");
    await untilArchived(id);
    const snapshotId = await snapshotOf(id);
    const fresh = await pausedWith("too new");
    await untilArchived(fresh);
    const kept = await snapshotOf(fresh);
    const found = control.node.snapshots.get(snapshotId);
    if (!found) throw new Error("the snapshot is not on the node");
    found.usedAt = new Date(Date.now() - 3_600_000).toISOString();
    const disk = info().disk;
    info().disk = { ...disk, free_bytes: 2 ** 30 };
    try {
      await eventually(
        async () => expect(await record(id)).toMatchObject({ snapshot_tier: "cold" }),
        WITHIN_MS,
      );
    } finally {
      info().disk = disk;
    }
    expect(control.node.snapshots.has(snapshotId)).toBe(false);
    expect(control.node.snapshots.has(kept)).toBe(true);
    expect(await control.ask(`POST /v1/sessions/${id}/checkpoints`)).toMatchObject({
      status: 409,
      body: { code: "session_not_live" },
    });
    const forked = await control.ask(`POST /v1/sessions/${id}/fork`, { body: { count: 1 } });
    expect(forked.status).toBe(200);
    await eventually(async () => expect(await record(id)).toMatchObject({ snapshot_tier: "hot" }), WITHIN_MS);
  });

  test("refuses to fetch a state, which then stays where it is", async () => {
    const id = await pausedWith("no room");
    await untilArchived(id);
    await withEmptyNode(async (other) => {
      other.node.info.has_disk_room = false;
      const answer = await other.ask(`POST /v1/sessions/${id}/resume`);
      expect(answer).toMatchObject({ status: 503, body: { code: "node_disk_pressure" } });
      expect(await record(id, other)).toMatchObject({ state: "paused" });
    });
  });
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

  test("lets a session go on whose archive fails, says why, and pauses it at another attempt", async () => {
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
    const live = await record(id, strict);
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
  const id = await pausedWith("hunter2 hunter2 hunter2");
  await untilArchived(id);
  const store = await openStore();
  for await (const { key } of store.list("")) {
    const fetched = await store.get(key);
    for await (const piece of fetched?.content ?? [])
      expect(Buffer.from(piece).includes("hunter2")).toBe(false);
  }
  await store.close();
});

test("a check of what is stored finds a damaged object, and the state is packed again", async () => {
  const id = await pausedWith("to be checked");
  await untilArchived(id);
  const [{ space_id: space }] = await rows("select space_id from archives where session_id = $1", [id]);
  const names = objectNames().filter((name) => name.includes(space));
  for (const name of names) writeFileSync(path.join(objectsDir(), name), "nonsense");
  const { keyring } = await Keyring.load(control.settings.kekSource, false);
  const [objects, db] = [
    await openStore(),
    openDatabase({ url: control.settings.databaseUrl, log: silentLog }),
  ];
  const check = async () => {
    const found = await Array.fromAsync(readBackArchives({ db, objects, keyring }, async () => {}));
    return found.filter((one) => one.id === space).flatMap(({ damages }) => damages);
  };
  expect(await check()).toHaveLength(1);
  await untilArchived(id);
  await eventually(async () => expect(await check()).toEqual([]), WITHIN_MS);
  await objects.close();
  await db.destroy();
});

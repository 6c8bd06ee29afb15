/** The work on archives in the background: sweeps, a disk that is nearly full, a check of all that is stored. */
import { writeFileSync } from "node:fs";
import path from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { ArchiveWorld, WITHIN_MS } from "../../test-support/archive-world.ts";
import { type Control, eventually } from "../../test-support/control.ts";
import { silentLog } from "../../test-support/database.ts";
import { openDatabase } from "../db/pool.ts";
import { Keyring } from "../secrets/keyring.ts";
import { readBackArchives } from "./read-back.ts";
import { removeOrphanChunks } from "./remove-objects.ts";
import { leaseSpace, listFreeable, releaseSpace } from "./store.ts";

let world: ArchiveWorld;
let control: Control;
beforeAll(async () => {
  world = await ArchiveWorld.start();
  control = world.control;
});
afterEach(() => world.clear());
afterAll(() => control.close());

describe("a sweep", () => {
  test("removes what no row names once it is old enough, and nothing that an archive needs", async () => {
    const id = await world.pausedWith("swept around");
    await world.untilArchived(id);
    const store = await world.openStore();
    const stores = { objects: store, localObjects: store };
    const db = openDatabase({ url: control.settings.databaseUrl, log: silentLog });
    const [{ space_id: space, org_id: org }] = await world.rows(
      "select * from archives where session_id = $1",
      [id],
    );
    const stray = `${org}/archives/${space}/${"a".repeat(64)}`;
    const unknown = `${org}/archives/spc_${"0".repeat(21)}/${"b".repeat(64)}`;
    for (const key of [stray, unknown]) await store.put(key, Buffer.from("x"));
    const strays = async () => [await store.head(stray), await store.head(unknown)];
    await removeOrphanChunks({ db, ...stores });
    expect(await strays()).toEqual([expect.anything(), expect.anything()]);
    await removeOrphanChunks({ db, ...stores }, -1);
    expect(await strays()).toEqual([undefined, undefined]);
    await store.close();
    await db.destroy();
    await world.withEmptyNode(async (other) => {
      expect((await other.ask(`POST /v1/sessions/${id}/resume`)).body.state).toBe("live");
      await other.ask(`DELETE /v1/sessions/${id}`);
    });
  });

  test("and a packing never have a space at once", async () => {
    const id = await world.pausedWith("first one");
    await world.untilArchived(id);
    const [{ space_id: space }] = await world.rows("select space_id from archives where session_id = $1", [
      id,
    ]);
    const db = openDatabase({ url: control.settings.databaseUrl, log: silentLog });
    const lease = () => db.transaction().execute((tx) => leaseSpace(tx, space, 600_000));
    const held = await lease();
    expect(held).toBeInstanceOf(Date);
    expect(await lease()).toBeUndefined();
    await control.ask(`POST /v1/sessions/${id}/resume`);
    await control.ask(`POST /v1/sessions/${id}/pause`);
    // The sweeps pass by meanwhile.
    await world.untilArchived(id, "pending");
    const [{ attempt }] = await world.rows("select attempt from archives where snapshot_id = $1", [
      await world.snapshotOf(id),
    ]);
    expect(attempt).toBe(0);
    expect(await lease()).toBeUndefined();
    await releaseSpace(db, space, held as Date);
    await world.untilArchived(id);
    await db.destroy();
  });
});

describe("a disk that is nearly full", () => {
  const info = () => control.node.info;

  test("lets go of states that are unused, archived and the least recently used, and of no others", async () => {
    const id = await world.pausedWith("pushed out");
    await world.untilArchived(id);
    const snapshotId = await world.snapshotOf(id);
    const fresh = await world.pausedWith("too new");
    await world.untilArchived(fresh);
    const kept = await world.snapshotOf(fresh);
    const found = control.node.snapshots.get(snapshotId);
    if (!found) throw new Error("the snapshot is not on the node");
    found.usedAt = new Date(Date.now() - 3_600_000).toISOString();
    const disk = info().disk;
    info().disk = { ...disk, free_bytes: 2 ** 30 };
    try {
      await eventually(
        async () => expect(await world.record(id)).toMatchObject({ snapshot_tier: "cold" }),
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
    await eventually(
      async () => expect(await world.record(id)).toMatchObject({ snapshot_tier: "hot" }),
      WITHIN_MS,
    );
  });

  test("keeps a state that another one is being packed against", async () => {
    const id = await world.pausedWith("base of another");
    await world.untilArchived(id);
    const snapshotId = await world.snapshotOf(id);
    const db = openDatabase({ url: control.settings.databaseUrl, log: silentLog });
    const freeable = async () =>
      (await listFreeable(db, [snapshotId], true)).map(({ snapshot_id }) => snapshot_id);
    expect(await freeable()).toEqual([snapshotId]);
    const [{ id: archive, space_id: space }] = await world.rows(
      "select * from archives where snapshot_id = $1",
      [snapshotId],
    );
    await world.rows("update archive_spaces set swept_until = now() + interval '1 hour' where id = $1", [
      space,
    ]);
    await world.rows(
      `insert into archives (id, org_id, space_id, kind, snapshot_id, session_id, base_archive, kek_id, data_key)
         select 'arc_above', org_id, space_id, kind, 'snp_above', session_id, id, kek_id, data_key from archives where id = $1`,
      [archive],
    );
    expect(await freeable()).toEqual([]);
    await world.rows("delete from archives where id = 'arc_above'");
    expect(await freeable()).toEqual([snapshotId]);
    expect(await listFreeable(db, [snapshotId], false)).toEqual([]);
    await db.destroy();
  });

  test("refuses to fetch a state, which then stays where it is", async () => {
    const id = await world.pausedWith("no room");
    await world.untilArchived(id);
    await world.withEmptyNode(async (other) => {
      other.node.info.has_disk_room = false;
      const answer = await other.ask(`POST /v1/sessions/${id}/resume`);
      expect(answer).toMatchObject({ status: 503, body: { code: "node_disk_pressure" } });
      expect(await world.record(id, other)).toMatchObject({ state: "paused" });
    });
  });
});

test("a check of what is stored finds a damaged object, and the state is packed again", async () => {
  const id = await world.pausedWith("to be checked");
  await world.untilArchived(id);
  const [{ space_id: space }] = await world.rows("select space_id from archives where session_id = $1", [id]);
  const names = world.objectsWith(space);
  for (const name of names) writeFileSync(path.join(world.objectsDir, name), "nonsense");
  const { keyring } = await Keyring.load(control.settings.kekSource, false);
  const [objects, db] = [
    await world.openStore(),
    openDatabase({ url: control.settings.databaseUrl, log: silentLog }),
  ];
  const check = async () => {
    const found = await Array.fromAsync(
      readBackArchives({ db, objects, localObjects: objects, keyring }, async () => {}),
    );
    return found.filter((one) => one.id === space).flatMap(({ damages }) => damages);
  };
  expect(await check()).toHaveLength(1);
  await world.untilArchived(id);
  await eventually(async () => expect(await check()).toEqual([]), WITHIN_MS);
  await objects.close();
  await db.destroy();
});

/** The warm tier: states that nobody uses are packed into a directory of the host when its disk is nearly full. */
import { rename, rm } from "node:fs/promises";
import path from "node:path";
import { GIB, MIB } from "@vivarium/kit/sizes";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { ArchiveWorld, WITHIN_MS } from "../../test-support/archive-world.ts";
import { Control, eventually } from "../../test-support/control.ts";
import { silentLog } from "../../test-support/database.ts";
import { createApp } from "../app.ts";
import { openDatabase } from "../db/pool.ts";
import { NodeClient } from "../fleet/node-client.ts";
import { Keyring } from "../secrets/keyring.ts";
import { addMissing } from "./add-missing.ts";
import { freeDisk } from "./free.ts";

let world: ArchiveWorld;
let control: Control;
let disk: Control["node"]["info"]["disk"];
beforeAll(async () => {
  world = await ArchiveWorld.start({ hasArchives: false, hasWarmTier: true });
  control = world.control;
  disk = control.node.info.disk;
});
afterEach(async () => {
  control.node.info.disk = disk;
  await world.clear();
});
afterAll(() => control.close());

const fill = (freeBytes = 4 * GIB) => {
  control.node.info.disk = { ...disk, total_bytes: 100 * GIB, free_bytes: freeBytes };
};

/** A paused session whose state is large, and was last used an hour ago. */
async function unused(content: string, bytes = 8 * MIB): Promise<string> {
  const id = await world.pausedWith(content);
  return await leaveUnused(id, bytes);
}

async function leaveUnused(id: string, bytes = 8 * MIB): Promise<string> {
  Object.assign(await stateOf(id), { bytes, usedAt: new Date(Date.now() - 3_600_000).toISOString() });
  return id;
}

async function stateOf(id: string) {
  const found = control.node.snapshots.get(await world.snapshotOf(id));
  if (!found) throw new Error("the snapshot is not on the node");
  return found;
}

async function untilWarm(id: string): Promise<void> {
  await eventually(async () => {
    expect(await world.record(id)).toMatchObject({ state: "paused", snapshot_tier: "warm" });
  }, WITHIN_MS);
}

type Deps = Parameters<typeof freeDisk>[0];

/** A part of the sweeps, once, so that a test knows that it has looked. */
async function once(part: (deps: Deps) => Promise<void>): Promise<void> {
  const db = openDatabase({ url: control.settings.databaseUrl, log: silentLog });
  const nodes = new NodeClient(control.settings.nodeSocket);
  const { keyring } = await Keyring.load(control.settings.kekSource, false);
  const objects = await world.openStore();
  const stores = { objects, localObjects: objects };
  const tier = { hasArchives: false, hasWarmTier: true };
  await part({ db, nodes, log: silentLog, keyring, ...stores, ...tier }).finally(() => nodes.close());
  await objects.close();
  await db.destroy();
}

const freeOnce = () => once(freeDisk);

const archivesOf = (id: string) => world.rows("select * from archives where session_id = $1", [id]);

test("a state that nobody uses is packed when the disk is nearly full, leaves the node, and wakes", async () => {
  const id = await unused("rarely used");
  const snapshotId = await world.snapshotOf(id);
  expect(await world.record(id)).toMatchObject({ snapshot_tier: "hot", archive: { status: "unavailable" } });
  fill();
  await untilWarm(id);
  expect(control.node.snapshots.has(snapshotId)).toBe(false);
  // It is no copy elsewhere.
  expect(await world.record(id)).toMatchObject({ archive: { status: "unavailable" } });
  expect(
    await world.rows("select type from events where session_id = $1 and type like 'archive.%'", [id]),
  ).toEqual([]);
  const read = await control.ask(`GET /v1/sessions/${id}/files?path=content`);
  expect([read.status, read.text]).toEqual([200, expect.stringContaining("rarely used")]);
});

test("nothing is packed while the disk has space, or of what is in use, small or sealed", async () => {
  const fresh = await world.pausedWith("just used");
  (await stateOf(fresh)).bytes = 8 * MIB;
  const small = await unused("small", MIB);
  const sealed = await control.createLive({ secrets: { TOKEN: "abcdefghijklmnop" } });
  await control.ask(`POST /v1/sessions/${sealed}/pause`);
  await leaveUnused(sealed);
  const packed = await unused("packed");
  fill();
  await untilWarm(packed);
  for (const id of [fresh, small, sealed]) expect(await archivesOf(id)).toEqual([]);
  control.node.info.disk = disk;
  const spare = await unused("there is space");
  await freeOnce();
  expect(await archivesOf(spare)).toEqual([]);
});

test("states that share blocks with others than their baseline are not packed: nothing would be free", async () => {
  const shared = await world.pausedWith("with a checkpoint");
  const { body: checkpoint } = await control.ask(`POST /v1/sessions/${shared}/checkpoints`);
  const copy = control.node.snapshots.get(checkpoint.checkpoint_id);
  if (!copy) throw new Error("the checkpoint is not on the node");
  copy.bytes = 0;
  await leaveUnused(shared);
  const made = await control.createLive({ from_checkpoint: checkpoint.checkpoint_id });
  await control.ask(`POST /v1/sessions/${made}/pause`);
  await leaveUnused(made);
  const packed = await unused("packed");
  fill();
  await untilWarm(packed);
  for (const id of [shared, made]) expect(await archivesOf(id)).toEqual([]);
});

test("a state stays on the node whose archive is not there, or of a bucket that the service has no more", async () => {
  const id = await unused("kept");
  fill();
  await untilWarm(id);
  control.node.info.disk = disk;
  // A fork of it brings it back beside its archive.
  expect((await control.ask(`POST /v1/sessions/${id}/fork`, { body: { count: 1 } })).status).toBe(200);
  await leaveUnused(id);
  const snapshotId = await world.snapshotOf(id);
  const space = await world.spaceOf(id);
  await control.sql.query("update archive_spaces set is_local = false where id = $1", [space]);
  fill();
  await freeOnce();
  expect(control.node.snapshots.has(snapshotId)).toBe(true);
  await control.sql.query("update archive_spaces set is_local = true where id = $1", [space]);
  control.node.info.disk = disk;
  const [{ contents }] = await archivesOf(id);
  const object = world.objectsWith(contents.toString("hex"))[0] ?? "";
  const file = path.join(world.objectsDir, object);
  await rename(file, `${file}.elsewhere`);
  fill();
  await freeOnce();
  expect(control.node.snapshots.has(snapshotId)).toBe(true);
  await rename(`${file}.elsewhere`, file);
  await freeOnce();
  expect(control.node.snapshots.has(snapshotId)).toBe(false);
});

test("a base that the directory has lost is packed again before another state differs from it", async () => {
  const first = await unused("first of two");
  fill();
  await untilWarm(first);
  const [{ contents }] = await world.rows("select contents from archives where kind = 'baseline'");
  const object = () => world.objectsWith(contents.toString("hex"));
  expect(object()).toHaveLength(1);
  await rm(path.join(world.objectsDir, object()[0] ?? ""));
  const second = await unused("second of two");
  await untilWarm(second);
  const [{ contents: again }] = await world.rows("select contents from archives where kind = 'baseline'");
  expect(world.objectsWith(again.toString("hex"))).toHaveLength(1);
});

test("nothing is packed onto a disk that has hardly any space", async () => {
  const id = await unused("too late");
  fill(GIB / 2);
  await freeOnce();
  expect(await archivesOf(id)).toEqual([]);
});

test("a checkpoint of a warm session is made without waking it", async () => {
  const id = await unused("to be kept");
  fill();
  await untilWarm(id);
  const made = await control.ask(`POST /v1/sessions/${id}/checkpoints`);
  expect(made.status).toBe(200);
  expect(await world.record(id)).toMatchObject({ state: "paused" });
});

test("the archive goes with the session's next pause, and with the session", async () => {
  const id = await unused("first");
  fill();
  await untilWarm(id);
  control.node.info.disk = disk;
  const space = await world.spaceOf(id);
  expect(world.objectsWith(space)).not.toEqual([]);
  await control.ask(`POST /v1/sessions/${id}/resume`);
  await control.ask(`POST /v1/sessions/${id}/pause`);
  await eventually(async () => expect(await archivesOf(id)).toEqual([]), WITHIN_MS);
  await eventually(() => expect(world.objectsWith(space)).toEqual([]), WITHIN_MS);

  const other = await unused("second");
  fill();
  await untilWarm(other);
  const ofOther = await world.spaceOf(other);
  await control.ask(`DELETE /v1/sessions/${other}`);
  await eventually(() => expect(world.objectsWith(ofOther)).toEqual([]), WITHIN_MS);
});

test("a caller cannot ask for the archive, which is not a cold tier", async () => {
  const id = await unused("asked for");
  expect(await control.ask(`POST /v1/sessions/${id}/archive/retry`)).toMatchObject({
    status: 503,
    body: { code: "archive_unavailable" },
  });
  expect((await control.ask("GET /v1/healthz")).body.checks.cold_tier).toBe("off");
});

// The last one: its archives of a bucket stay.
test("once there is a bucket, states that are on the node are archived there, and their baseline", async () => {
  const [back, away] = [await unused("back on the node"), await unused("packed alone")];
  fill();
  for (const id of [back, away]) await untilWarm(id);
  control.node.info.disk = disk;
  const bringBack = async (id: string) => {
    expect((await control.ask(`POST /v1/sessions/${id}/fork`, { body: { count: 1 } })).status).toBe(200);
    // The fork ends after its answer, and states in use are left alone.
    const opOf = () => world.rows("select op from sessions where id = $1", [id]);
    await eventually(async () => expect(await opOf()).toEqual([{ op: null }]));
  };
  const inTier = "select is_local from archives join archive_spaces as space on space.id = space_id where";
  const ofSession = async (id: string) => await world.rows(`${inTier} session_id = $1`, [id]);
  await bringBack(back);
  await once((deps) => addMissing({ ...deps, hasArchives: true }));
  expect(await ofSession(back)).toEqual([{ is_local: false }]);
  // The other one has nothing but its archive, which differs from the baseline's.
  expect([await ofSession(away), await world.rows(`${inTier} kind = 'baseline'`)]).toEqual([
    [{ is_local: true }],
    [{ is_local: true }],
  ]);
  const settings = { ...control.settings, hasArchives: true, hasWarmTier: false };
  const app = await createApp(settings, silentLog);
  const later = new Control({ app, node: control.node, key: control.key, sql: control.sql, settings });
  expect(await later.ask(`POST /v1/sessions/${away}/archive/retry`)).toMatchObject({
    status: 409,
    body: { error: expect.stringContaining("resume the session") },
  });
  await app.close();
  await bringBack(away);
  await once((deps) => addMissing({ ...deps, hasArchives: true }));
  expect(await ofSession(away)).toEqual([{ is_local: false }]);
  expect(await world.rows(`${inTier} kind = 'baseline'`)).toEqual([{ is_local: false }]);
  const [{ base_archive: base }] = await archivesOf(away);
  expect(await world.rows("select kind from archives where id = $1", [base])).toEqual([{ kind: "baseline" }]);
});

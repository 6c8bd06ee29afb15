/** Operations whose process died are taken over, and orphans on the node are removed. */
import { MACHINE_ID_PATTERN } from "@vivarium/contract/node";
import { Refusal } from "@vivarium/contract/test-support/node";
import { randomId } from "@vivarium/kit/id";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { createDatabase, silentLog } from "../../test-support/database.ts";
import { createApp } from "../app.ts";
import { keepOnlyCheckpoints } from "../checkpoints/store.ts";
import { migrate } from "../db/migrate.ts";
import { openDatabase } from "../db/pool.ts";
import { NodeClient } from "../fleet/node-client.ts";
import { deleteProvisionalHistory } from "../leases/provisional.ts";
import { findSnapshotsInUse } from "../sessions/store.ts";
import { OrphanSnapshots, type SnapshotOwners } from "../upkeep/orphan-snapshots.ts";

const auditKey = Buffer.alloc(32);
let control: Control;
beforeAll(async () => {
  control = await startControl();
});
afterEach(async () => {
  control.node.onStart = () => {};
  control.node.onSnapshot = () => {};
  control.node.onDelete = () => {};
  await control.destroyAll();
});
afterAll(() => control.close());

const pause = (id: string) => control.ask(`POST /v1/sessions/${id}/pause`);
const read = async (id: string) => (await control.ask(`GET /v1/sessions/${id}`)).body;
const machinesOf = (id: string) => [...control.node.machines.keys()].filter((name) => name.startsWith(id));

/** Makes the row look as if its process died during an operation. */
async function leaveOperation(id: string, op: string, input: object = {}, claimedFor = "-1 second") {
  await control.sql.query(
    `update sessions set op = $2, op_id = 'of-the-dead', op_input = $3, op_claimed_until = now() + $4::interval
     where id = $1`,
    [id, op, JSON.stringify(input), claimedFor],
  );
}

async function rowOf(id: string) {
  const { rows } = await control.sql.query("select * from sessions where id = $1", [id]);
  return rows[0];
}

/** Orphans of an earlier look, long enough ago. */
const longAgo = (...ids: string[]) => new Map(ids.map((id) => [id, -60_000]));

const untilOver = (id: string) => eventually(async () => expect((await rowOf(id)).op).toBeNull());

/** A session in the state just before the commit of a pause: its snapshot is durable, and its machine is stopped. */
async function createCaptured(): Promise<{ id: string; snapshotId: string }> {
  const id = await control.createLive();
  const snapshotId = `pau_${randomId()}`;
  const nodes = new NodeClient(control.node.socketPath);
  // The claim is valid meanwhile.
  await leaveOperation(id, "pause", { snapshot_id: snapshotId, event: "pause" }, "1 hour");
  const spec = { machine_id: `${id}-1`, after: "hold" } as const;
  await nodes.putSnapshot(snapshotId, spec, new AbortController().signal);
  nodes.close();
  return { id, snapshotId };
}

async function createPaused(): Promise<string> {
  const id = await control.createLive();
  expect((await pause(id)).status).toBe(200);
  await eventually(() => expect(machinesOf(id)).toEqual([]));
  return id;
}

describe("a pause whose process died", () => {
  test("is still the change of the caller that asked for it", async () => {
    const id = await control.createLive();
    const { org_id: orgId } = await rowOf(id);
    const by = { orgId, actor: { kind: "api_key", id: "key_dead" }, requestId: "r-dead", ip: "10.1.1.1" };
    await leaveOperation(id, "pause", { snapshot_id: `pau_${randomId()}`, event: "pause", by });
    await control.until(id, "paused");
    const { entries } = (await control.ask(`GET /v1/audit?session_id=${id}&action=session.pause`)).body;
    expect(entries).toMatchObject([{ actor: by.actor, request_id: "r-dead", ip: "10.1.1.1", outcome: "ok" }]);
  });

  test("before the node call is carried out", async () => {
    const id = await control.createLive();
    const snapshotId = `pau_${randomId()}`;
    await leaveOperation(id, "pause", { snapshot_id: snapshotId, event: "pause" });
    await control.until(id, "paused");
    expect(await rowOf(id)).toMatchObject({ snapshot_id: snapshotId, op: null, op_id: null, op_input: null });
    await eventually(() => expect(machinesOf(id)).toEqual([]));
    expect((await control.exec(id)).status).toBe(200);
  });

  test("after the snapshot was durable is committed with that snapshot", async () => {
    const { id, snapshotId } = await createCaptured();
    await leaveOperation(id, "pause", { snapshot_id: snapshotId, event: "pause" });
    await control.until(id, "paused");
    expect([(await rowOf(id)).snapshot_id, [...control.node.snapshots.keys()]]).toEqual([
      snapshotId,
      [snapshotId],
    ]);
  });

  test("is committed although the host has lost the machine since", async () => {
    const { id, snapshotId } = await createCaptured();
    control.node.machines.delete(`${id}-1`);
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect((await read(id)).state).toBe("live");
    await leaveOperation(id, "pause", { snapshot_id: snapshotId, event: "pause" });
    await control.until(id, "paused");
    expect((await control.exec(id)).status).toBe(200);
  });

  test("keeps its wake_at and its reason", async () => {
    const id = await control.createLive({ max_lifetime_ms: 3_600_000 });
    const wakeAt = new Date(Date.now() + 60_000).toISOString();
    await leaveOperation(id, "pause", { snapshot_id: `pau_${randomId()}`, event: "pause", wake_at: wakeAt });
    expect((await control.until(id, "paused")).body.wake_at).toBe(wakeAt);
    const expiring = await control.createLive();
    await leaveOperation(expiring, "pause", { snapshot_id: `pau_${randomId()}`, event: "max_lifetime" });
    await control.until(expiring, "lifetime_expired");
  });

  test.each([
    [
      "cannot save",
      async () => {
        control.node.onSnapshot = () => {
          throw new Refusal("capture_failed");
        };
        return { id: await control.createLive(), snapshotId: `pau_${randomId()}` };
      },
    ],
    [
      "has lost what was saved",
      async () => {
        const captured = await createCaptured();
        control.node.snapshots.delete(captured.snapshotId);
        return captured;
      },
    ],
  ])("is rolled back if the node %s, and the machine is continued", async (_why, make) => {
    const { id, snapshotId } = await make();
    await leaveOperation(id, "pause", { snapshot_id: snapshotId, event: "pause" });
    await untilOver(id);
    expect([(await read(id)).state, control.node.snapshots.size]).toEqual(["live", 0]);
    expect(control.node.machines.get(`${id}-1`)?.state).toBe("running");
    expect((await control.exec(id)).status).toBe(200);
  });

  test("while the node is away waits for it", async () => {
    const id = await control.createLive();
    await control.node.goDown();
    await leaveOperation(id, "pause", { snapshot_id: `pau_${randomId()}`, event: "pause" });
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect((await rowOf(id)).op).toBe("pause");
    await control.node.listen();
    await control.until(id, "paused");
  });
});

describe("a wake whose process died", () => {
  test("before the node call is carried out", async () => {
    const id = await createPaused();
    await leaveOperation(id, "wake", { event: "resume" });
    await control.until(id, "live");
    expect(machinesOf(id)).toEqual([`${id}-2`]);
  });

  test("after the machine was started is committed with that machine", async () => {
    const id = await createPaused();
    const nodes = new NodeClient(control.node.socketPath);
    await leaveOperation(id, "wake", { event: "resume" }, "1 hour");
    const { snapshot_id } = await rowOf(id);
    const network = { generation: 1, egress: { mode: "allow" as const, allow: [] }, exposed: [] };
    const base = { template: "base", size: "small", hostname: id, no_sudo: false };
    const spec = { ...base, network, snapshot_id, resume: true };
    await nodes.startMachine(`${id}-2`, spec, new AbortController().signal);
    nodes.close();
    let starts = 0;
    control.node.onStart = () => {
      starts += 1;
    };
    // While the claim is valid, the machine stays and no other process acts.
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect([machinesOf(id), (await rowOf(id)).op]).toEqual([[`${id}-2`], "wake"]);
    await leaveOperation(id, "wake", { event: "resume" });
    await control.until(id, "live");
    expect([machinesOf(id), starts, (await rowOf(id)).incarnation]).toEqual([[`${id}-2`], 0, 2]);
  });

  test("is rolled back if the node refuses, and leaves no machine", async () => {
    const id = await createPaused();
    control.node.onStart = () => {
      throw new Refusal("snapshot_damaged");
    };
    await leaveOperation(id, "wake", { event: "resume" });
    await untilOver(id);
    expect([(await read(id)).state, machinesOf(id)]).toEqual(["paused", []]);
  });
});

test("an operation whose process is alive is not taken over, and a request waits for it", async () => {
  const id = await control.createLive();
  await leaveOperation(id, "pause", { snapshot_id: `pau_${randomId()}`, event: "pause" }, "1 hour");
  const waiting = control.exec(id);
  await new Promise((resolve) => setTimeout(resolve, 300));
  expect([(await rowOf(id)).op_id, control.node.snapshots.size]).toEqual(["of-the-dead", 0]);
  await leaveOperation(id, "pause", { snapshot_id: `pau_${randomId()}`, event: "pause" });
  const { status, body } = await waiting;
  expect([status, body.exit_code]).toEqual([200, 0]);
});

test("an operation of a destroyed session is not taken over", async () => {
  const { id } = await createCaptured();
  expect((await control.ask(`DELETE /v1/sessions/${id}`)).status).toBe(204);
  expect([control.node.snapshots.size, machinesOf(id)]).toEqual([0, []]);
  await new Promise((resolve) => setTimeout(resolve, 200));
  expect((await rowOf(id)).state).toBe("destroyed");
  expect(control.node.snapshots.size).toBe(0);
});

test("a process that shuts down leaves its operation to another process", async () => {
  const id = await control.createLive();
  const other = await createApp(control.settings, silentLog);
  const captured = Promise.withResolvers<void>();
  const capturing = Promise.withResolvers<void>();
  control.node.onSnapshot = async () => {
    capturing.resolve();
    await captured.promise;
  };
  const answer = other.server.inject({
    method: "POST",
    url: `/v1/sessions/${id}/pause`,
    headers: { authorization: `Bearer ${control.key}` },
  });
  await capturing.promise;
  const closed = other.close();
  control.node.onSnapshot = () => {};
  expect((await answer).statusCode).toBe(503);
  await closed;
  captured.resolve();
  await control.until(id, "paused");
  expect((await control.exec(id)).status).toBe(200);
});

describe("the reconcile", () => {
  test("continues a stopped machine whose session is live", async () => {
    const id = await control.createLive();
    const machine = control.node.machines.get(`${id}-1`);
    if (!machine) throw new Error("no machine");
    machine.state = "held";
    await eventually(() => expect(machine.state).toBe("running"));
    await untilOver(id);
  });

  test("removes orphan machines of a wake and of a pause", async () => {
    const id = await createPaused();
    for (const number of [1, 2]) {
      control.node.addMachine(`${id}-${number}`, "held");
    }
    await eventually(() => expect(machinesOf(id)).toEqual([]));
    await untilOver(id);
    expect((await read(id)).state).toBe("paused");
  });

  test("does nothing while an operation is in flight", async () => {
    const { id, snapshotId } = await createCaptured();
    control.node.addMachine(`${id}-2`, "held");
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect([machinesOf(id), control.node.machines.get(`${id}-1`)?.state]).toEqual([
      [`${id}-1`, `${id}-2`],
      "held",
    ]);
    await leaveOperation(id, "pause", { snapshot_id: snapshotId, event: "pause" });
    await control.until(id, "paused");
    await eventually(() => expect(machinesOf(id)).toEqual([]));
  });

  test("deletes orphan snapshots at a second look, some seconds after the first", async () => {
    const kept = await createPaused();
    const captured = await createCaptured();
    const orphan = `pau_${randomId()}`;
    const nodes = new NodeClient(control.node.socketPath);
    const db = openDatabase({ url: control.settings.databaseUrl, log: silentLog });
    const { snapshot_id: saved } = await rowOf(kept);
    await nodes.putSnapshot(orphan, { snapshot_id: saved }, new AbortController().signal);
    await control.sql.query("insert into snapshot_names values ($1)", [orphan]);
    const since = new Map<string, number>([["pau_gone", 0]]);
    const deps = { db, nodes, log: silentLog, auditKey, snapshotOwners: [findSnapshotsInUse] };
    const orphans = new OrphanSnapshots(deps, since);
    await orphans.removeOrCatchUp();
    expect([...since.keys()]).toEqual([orphan]);
    expect(control.node.snapshots.has(orphan)).toBe(true);
    for (const id of [orphan, saved, captured.snapshotId]) since.set(id, performance.now() - 5_001);
    await orphans.removeOrCatchUp();
    expect([...control.node.snapshots.keys()].sort()).toEqual([saved, captured.snapshotId].sort());
    nodes.close();
    await db.destroy();
  });

  test("does not delete snapshots of another database, even if it has sessions", async () => {
    const nodes = new NodeClient(control.node.socketPath);
    const saved = (await rowOf(await createPaused())).snapshot_id;
    const other = await createDatabase();
    const db = openDatabase({ url: other, log: silentLog });
    await migrate(db);
    const deps = {
      db,
      nodes,
      log: silentLog,
      auditKey,
      snapshotOwners: [async () => []],
    };
    const orphans = new OrphanSnapshots(deps, longAgo(saved));
    await orphans.removeOrCatchUp();
    expect([control.node.snapshots.has(saved), orphans.unknown.has(saved)]).toEqual([true, true]);
    nodes.close();
    await db.destroy();
  });

  test("does not delete snapshots from after the backup that the database was restored from", async () => {
    const id = await createPaused();
    const { snapshot_id: before } = await rowOf(id);
    const made = await control.ask(`POST /v1/sessions/${id}/checkpoints`);
    expect(made.status).toBe(200);
    const { checkpoint_id: later } = made.body;
    const dropped = await control.ask(`POST /v1/sessions/${id}/checkpoints`);
    const orphan = dropped.body.checkpoint_id as string;
    // The backup has the second checkpoint, without its row: a process died before it committed it.
    await control.sql.query("delete from checkpoints where id = any($1)", [[later, orphan]]);
    await control.sql.query("delete from snapshot_names where id = $1", [later]);
    const nodes = new NodeClient(control.node.socketPath);
    const db = openDatabase({ url: control.settings.databaseUrl, log: silentLog });
    const snapshotOwners = [findSnapshotsInUse, keepOnlyCheckpoints];
    const deps = { db, nodes, log: silentLog, auditKey, snapshotOwners };
    await new OrphanSnapshots(deps, longAgo(before, later, orphan)).removeOrCatchUp();
    expect([before, later, orphan].map((name) => control.node.snapshots.has(name))).toEqual([
      true,
      true,
      false,
    ]);
    nodes.close();
    await db.destroy();
  });

  test("deletes only names of snapshots that are gone and at least a day old", async () => {
    const id = await createPaused();
    const { snapshot_id: kept } = await rowOf(id);
    const planned = `pau_${randomId()}`;
    const [gone, fresh, orphan] = [`pau_${randomId()}`, `pau_${randomId()}`, `pau_${randomId()}`];
    const nodes = new NodeClient(control.node.socketPath);
    const db = openDatabase({ url: control.settings.databaseUrl, log: silentLog });
    await nodes.putSnapshot(orphan, { snapshot_id: kept }, AbortSignal.timeout(5_000 * SLOWNESS));
    await leaveOperation(id, "pause", { snapshot_id: planned, event: "pause" }, "1 hour");
    await control.sql.query("insert into snapshot_names select unnest($1::text[]) on conflict do nothing", [
      [planned, gone, fresh, orphan],
    ]);
    await control.sql.query("update snapshot_names set named_at = now() - interval '2 days' where id <> $1", [
      fresh,
    ]);
    const deps = { db, nodes, log: silentLog, auditKey, snapshotOwners: [findSnapshotsInUse] };
    await new OrphanSnapshots(deps).forgetNames();
    const { rows } = await control.sql.query("select id from snapshot_names where id = any($1)", [
      [kept, planned, gone, fresh, orphan],
    ]);
    expect(rows.map((row) => row.id).sort()).toEqual([kept, planned, fresh, orphan].sort());
    await leaveOperation(id, "settle");
    nodes.close();
    await db.destroy();
  });

  test("deletes the names of all gone snapshots in several pages, although some names are still in use", async () => {
    const db = openDatabase({ url: control.settings.databaseUrl, log: silentLog });
    const kept = (ids: string[]) => ids.filter((id) => id.startsWith("pau_a"));
    await control.sql.query(
      `insert into snapshot_names select 'pau_' || part || n, now() - interval '2 days'
       from generate_series(1, 1500) as n, unnest(array['a', 'b']) as part`,
    );
    const nodes = new NodeClient(control.node.socketPath);
    const deps = {
      db,
      nodes,
      log: silentLog,
      auditKey,
      snapshotOwners: [async (_db: unknown, ids: string[]) => kept(ids)],
    };
    await new OrphanSnapshots(deps).forgetNames();
    const { rows } = await control.sql.query(
      "select left(id, 5) as part, count(*)::integer from snapshot_names where id ~ '^pau_[ab][0-9]+$' group by 1",
    );
    expect(rows).toEqual([{ part: "pau_a", count: 1_500 }]);
    await control.sql.query("delete from snapshot_names where id ~ '^pau_[ab][0-9]+$'");
    nodes.close();
    await db.destroy();
  });

  test("lists snapshots before it reads their owners, so that one made meanwhile is not deleted", async () => {
    const asked: string[] = [];
    const made = `pau_${randomId()}`;
    const nodes = new NodeClient(control.node.socketPath);
    const db = openDatabase({ url: control.settings.databaseUrl, log: silentLog });
    const id = await control.createLive();
    const owners: SnapshotOwners = async (_db, ids) => {
      asked.push(...ids);
      await nodes.putSnapshot(
        made,
        { machine_id: `${id}-1`, after: "continue" },
        AbortSignal.timeout(5_000 * SLOWNESS),
      );
      return [];
    };
    await control.sql.query("insert into snapshot_names values ($1)", [made]);
    const deps = { db, nodes, log: silentLog, auditKey, snapshotOwners: [owners] };
    await new OrphanSnapshots(deps, longAgo(made)).removeOrCatchUp();
    expect([asked.includes(made), control.node.snapshots.has(made)]).toEqual([false, true]);
    nodes.close();
    await db.destroy();
  });
});

test("a destroy removes both machines of a restore whose process died after the commit", async () => {
  const id = await control.createLive();
  const ended: string[] = [];
  control.node.onDelete = (machineId) => void ended.push(machineId);
  // The row as after the commit. The first machine does not exist, so no sweep removes it.
  control.node.machines.delete(`${id}-1`);
  await control.sql.query(
    `update sessions set incarnation = 2, op = 'settle', op_id = 'of-the-dead', op_input = '{}',
     op_claimed_until = now() + interval '1 hour' where id = $1`,
    [id],
  );
  expect((await control.ask(`DELETE /v1/sessions/${id}`)).status).toBe(204);
  expect(ended).toEqual(expect.arrayContaining([`${id}-1`, `${id}-2`]));
});

test("a destroy during the settle of a first machine asks for no machine before it, which the node would refuse", async () => {
  const id = await control.createLive();
  control.node.onDelete = (machineId) => {
    if (!MACHINE_ID_PATTERN.test(machineId)) throw new Refusal("machine_not_found");
  };
  await leaveOperation(id, "settle", {}, "1 hour");
  expect((await control.ask(`DELETE /v1/sessions/${id}`)).status).toBe(204);
  expect((await rowOf(id)).machine_released_at).not.toBeNull();
});

test("a fork that is rolled back after its last child is gone has no history to delete", async () => {
  const id = await control.createLive();
  await leaveOperation(id, "fork", { snapshot_id: `frk_${randomId()}` });
  await untilOver(id);
  const db = openDatabase({ url: control.settings.databaseUrl, log: silentLog });
  await expect(deleteProvisionalHistory(db, [])).resolves.toBeUndefined();
  await db.destroy();
});

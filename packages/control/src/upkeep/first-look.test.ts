/**
 * A backup was taken while a create or an operation was in flight. Newer machines and snapshots on the node are not
 * mistaken for orphans of that create or operation.
 */
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { Backups } from "../../test-support/backups.ts";
import { type Control, eventually, startControl } from "../../test-support/control.ts";

const LONG_AGO = "created_at = now() - interval '1 h', state_changed_at = now() - interval '1 h'";
const LAPSED = "now() - interval '1 h'";

let control: Control;
let backups: Backups;
beforeAll(async () => {
  control = await startControl({ sweeps: false });
  backups = new Backups(control);
});
afterEach(async () => {
  control.node.onStart = () => {};
  control.node.onGuest = (_asked, proceed) => proceed();
  await backups.closeServices();
  await control.destroyAll();
});
afterAll(() => control.close());

const ask = (id: string, verb: string, body?: object) =>
  control.ask(`POST /v1/sessions/${id}/${verb}`, { body });
const change = (id: string, set: string) =>
  control.sql.query(`update sessions set ${set} where id = $1`, [id]);
const numbersOf = (id: string) => backups.machinesOf(id).map((name) => name.slice(id.length + 1));

async function pauseUntilGone(id: string): Promise<void> {
  expect((await ask(id, "pause")).status).toBe(200);
  await eventually(() => expect(backups.machinesOf(id)).toEqual([]));
}

/** A session that is creating in the backup, and live now. */
async function createBackedUp(body: object = {}) {
  const made = Promise.withResolvers<void>();
  control.node.onStart = () => made.promise;
  const id = await control.create(body);
  const restore = await backups.backUp(id);
  made.resolve();
  control.node.onStart = () => {};
  await control.until(id, "live");
  return {
    id,
    /** Restores the backup as if it were an hour old. */
    restore: async () => {
      await restore();
      await change(id, `${LONG_AGO}, provision_claimed_until = ${LAPSED}`);
    },
  };
}

test("a session that is creating in the backup keeps the machine that it got since", async () => {
  const { id, restore } = await createBackedUp();
  await restore();
  await backups.startService();
  await control.until(id, "live");
  expect(await backups.rowOf(id)).toMatchObject({ incarnation: 1, resumed_at: null });
  expect(numbersOf(id)).toEqual(["1"]);
  expect((await backups.eventsOf(id)).at(-1)).toEqual(["session.live", undefined]);
  expect((await control.exec(id)).status).toBe(200);
});

test("it keeps a later machine, too", async () => {
  const { id, restore } = await createBackedUp();
  await pauseUntilGone(id);
  await ask(id, "resume");
  await restore();
  await backups.startService();
  await control.until(id, "live");
  await backups.untilQuiet(id);
  expect(await backups.rowOf(id)).toMatchObject({ incarnation: 2 });
  expect(numbersOf(id)).toEqual(["2"]);
});

test("a session that was paused since is paused, and wakes from its saved state", async () => {
  const { id, restore } = await createBackedUp();
  await pauseUntilGone(id);
  const { snapshot_id: saved } = await backups.rowOf(id);
  await restore();
  await backups.startService();
  await control.until(id, "paused");
  expect((await backups.eventsOf(id)).at(-1)).toEqual(["session.paused", "saved_state_found"]);
  expect((await control.exec(id)).status).toBe(200);
  expect(control.node.machines.get(`${id}-2`)?.spec?.snapshot_id).toBe(saved);
});

test("a session that never became live still fails", async () => {
  const { id, restore } = await createBackedUp();
  await restore();
  control.node.machines.delete(`${id}-1`);
  await backups.startService();
  const { body } = await control.until(id, "failed");
  expect(body.status_reason).toContain("not ready within");
});

test("a run that is creating in the backup ends, because its caller is gone", async () => {
  const { id, restore } = await createBackedUp();
  await restore();
  await change(id, `origin = 'run', destroy_after = ${LAPSED}`);
  await backups.startService();
  await eventually(async () => expect((await backups.rowOf(id)).state).toBe("destroyed"));
  await eventually(() => expect(numbersOf(id)).toEqual([]));
});

/** A parent and its child, which is creating in the backup and live now. */
async function forkBackedUp() {
  const parent = await control.createLive();
  const made = Promise.withResolvers<void>();
  const asked = Promise.withResolvers<string>();
  control.node.onStart = (machineId) => {
    asked.resolve(machineId.split("-", 1)[0] ?? "");
    return made.promise;
  };
  const forked = ask(parent, "fork");
  const child = await asked.promise;
  const restore = await backups.backUp(parent, child);
  const origin = [...control.node.snapshots.values()].find(({ snapshot_id: id }) => id.startsWith("frk_"));
  made.resolve();
  control.node.onStart = () => {};
  expect((await forked).status).toBe(200);
  return {
    parent,
    child,
    /** The snapshot of the fork, which is deleted once the child is live. */
    origin,
    restore: async () => {
      await restore();
      await change(child, `${LONG_AGO}, provision_claimed_until = ${LAPSED}, destroy_after = ${LAPSED}`);
      await change(parent, `op_claimed_until = ${LAPSED}`);
    },
  };
}

test("a fork's child that became live since stays, although its lease in the backup has lapsed", async () => {
  const { parent, child, restore } = await forkBackedUp();
  await restore();
  await backups.startService();
  await control.until(child, "live");
  await backups.untilQuiet(parent);
  expect(await backups.rowOf(child)).toMatchObject({ destroy_after: null, incarnation: 1 });
  expect(numbersOf(child)).toEqual(["1"]);
});

test("a child of a fork that was never committed is discarded, however long ago that was", async () => {
  const { parent, child, origin, restore } = await forkBackedUp();
  await restore();
  if (!origin) throw new Error("the fork has captured nothing");
  control.node.snapshots.set(origin.snapshot_id, origin);
  await backups.startService();
  await eventually(async () => expect(await backups.rowOf(child)).toBeUndefined());
  expect(numbersOf(child)).toEqual([]);
  expect(numbersOf(parent)).toEqual(["1"]);
});

/** Columns of an operation in the backup, whose process is dead. */
const operation = (op: string, input: object = {}) =>
  `op = '${op}', op_id = 'old', op_input = '${JSON.stringify(input)}', op_claimed_until = ${LAPSED}`;

test("a settle in the backup does not remove a session's later machine", async () => {
  const id = await control.createLive();
  const restore = await backups.backUp(id);
  await pauseUntilGone(id);
  await ask(id, "resume");
  await pauseUntilGone(id);
  await ask(id, "resume");
  await restore();
  await change(id, operation("settle"));
  await backups.startService();
  await eventually(async () => expect((await backups.rowOf(id)).incarnation).toBe(3));
  await backups.untilQuiet(id);
  expect(numbersOf(id)).toEqual(["3"]);
});

test("nor does it if a service was running while the backup was restored", async () => {
  const id = await control.createLive();
  const restore = await backups.backUp(id);
  await pauseUntilGone(id);
  await ask(id, "resume");
  await pauseUntilGone(id);
  await ask(id, "resume");
  const service = await backups.startService();
  await service.reconciled();
  await control.sql.query(`update backup set ${operation("settle")}`);
  await restore();
  await eventually(async () => expect((await backups.rowOf(id)).incarnation).toBe(3));
  await backups.untilQuiet(id);
  expect(numbersOf(id)).toEqual(["3"]);
});

test("a restore that is in flight in the backup, and that was committed since, is not rolled back", async () => {
  const id = await control.createLive();
  const { checkpoint_id: checkpointId } = (await ask(id, "checkpoints")).body;
  const loaded = Promise.withResolvers<void>();
  const loading = Promise.withResolvers<void>();
  control.node.onStart = () => {
    loading.resolve();
    return loaded.promise;
  };
  const restored = ask(id, "restore", { checkpoint_id: checkpointId });
  await loading.promise;
  const restore = await backups.backUp(id);
  loaded.resolve();
  expect((await restored).status).toBe(200);
  await restore();
  await change(id, `op_claimed_until = ${LAPSED}`);
  await backups.startService();
  await eventually(async () => expect(await backups.rowOf(id)).toMatchObject({ incarnation: 2, op: null }));
  expect(await backups.rowOf(id)).toMatchObject({ state: "live" });
  expect(numbersOf(id)).toEqual(["2"]);
});

test("a pause at the end of a lifetime in the backup does not destroy a session that was saved since", async () => {
  const id = await control.createLive({ max_lifetime_ms: 86_400_000 });
  const restore = await backups.backUp(id);
  await pauseUntilGone(id);
  const { snapshot_id: saved } = await backups.rowOf(id);
  await restore();
  await change(id, operation("pause", { snapshot_id: "pau_old", event: "max_lifetime" }));
  await backups.startService();
  await control.until(id, "paused");
  expect(await backups.rowOf(id)).toMatchObject({ snapshot_id: saved, op: null });
});

test("the time of an only command in the backup counts again from the catch-up", async () => {
  // The command still runs, so the session is not due before its time is over.
  control.node.onGuest = (asked, proceed) =>
    asked.call === "GET commands" ? asked.json({ going_on: 1 }) : proceed();
  const id = await control.createLive({ destroy_on_completion: true });
  const restore = await backups.backUp(id);
  await pauseUntilGone(id);
  await ask(id, "resume");
  await restore();
  await change(id, `destroy_after = ${LAPSED}, last_active_at = ${LAPSED} - interval '90 s'`);
  await backups.startService();
  await eventually(async () => expect((await backups.rowOf(id)).incarnation).toBe(2));
  const left = (await backups.rowOf(id)).destroy_after.getTime() - Date.now();
  expect(left).toBeGreaterThan(60_000);
  expect(left).toBeLessThan(91_000);
  expect((await backups.rowOf(id)).state).toBe("live");
});

test("if the session was paused since, the command's time is kept for the wake", async () => {
  const id = await control.createLive({ destroy_on_completion: true });
  const restore = await backups.backUp(id);
  await pauseUntilGone(id);
  await restore();
  await change(id, `destroy_after = ${LAPSED}, last_active_at = ${LAPSED} - interval '90 s'`);
  await backups.startService();
  await control.until(id, "paused");
  expect(Number((await backups.rowOf(id)).command_left_ms)).toBe(90_000);
});

test("the 24 hours of a machine found on the node count from the catch-up", async () => {
  const id = await control.createLive();
  const restore = await backups.backUp(id);
  await pauseUntilGone(id);
  await ask(id, "resume");
  await restore();
  await change(id, "live_since = now() - interval '30 h', due_at = now()");
  await backups.startService();
  await eventually(async () => expect((await backups.rowOf(id)).incarnation).toBe(2));
  expect((await backups.rowOf(id)).live_since.getTime()).toBeGreaterThan(Date.now() - 60_000);
});

test("no deadline is carried out before the node has answered, however long that takes", async () => {
  const id = await control.createLive();
  await pauseUntilGone(id);
  const restore = await backups.backUp(id);
  await ask(id, "resume");
  await restore();
  await change(id, "paused_ttl_ms = 1, paused_at = now() - interval '1 s', due_at = now()");
  await control.node.goDown();
  try {
    const service = await backups.startService();
    // Requests do not wait for the node for ever.
    await service.reconciled();
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    expect((await backups.rowOf(id)).state).toBe("paused");
  } finally {
    await control.node.listen();
  }
  await control.until(id, "live");
});

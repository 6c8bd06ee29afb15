/** The database is restored from a backup, while the node kept its newer machines and snapshots. */
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { Backups } from "../../test-support/backups.ts";
import { type Control, eventually, startControl } from "../../test-support/control.ts";

let control: Control;
let backups: Backups;
beforeAll(async () => {
  // No sweeps while the backup is restored, as if the service were stopped.
  control = await startControl({ sweeps: false });
  backups = new Backups(control);
});
afterEach(async () => {
  await backups.closeServices();
  await control.destroyAll();
});
afterAll(() => control.close());

const pause = (id: string) => control.ask(`POST /v1/sessions/${id}/pause`);
const resume = (id: string) => control.ask(`POST /v1/sessions/${id}/resume`);
const machinesOf = (id: string) => backups.machinesOf(id);
const rowOf = (id: string) => backups.rowOf(id);
const untilQuiet = (id: string) => backups.untilQuiet(id);
async function backUp(id: string) {
  await untilQuiet(id);
  return await backups.backUp(id);
}
const startService = () => backups.startService();
const eventsOf = (id: string) => backups.eventsOf(id);

/** Pauses, and waits until the machine is gone. */
async function pauseUntilGone(id: string): Promise<void> {
  await pause(id);
  await eventually(() => expect(machinesOf(id)).toEqual([]));
}

async function createPaused(): Promise<string> {
  const id = await control.createLive();
  await pauseUntilGone(id);
  return id;
}

test("a session that was paused and woken since the backup keeps the machine that it has", async () => {
  const id = await control.createLive();
  const restore = await backUp(id);
  await pause(id);
  await resume(id);
  await restore();
  await startService();
  await eventually(async () => expect((await rowOf(id)).incarnation).toBe(2));
  await untilQuiet(id);
  expect(machinesOf(id)).toEqual([`${id}-2`]);
  expect((await eventsOf(id)).at(-1)).toEqual(["session.resumed", "machine_found"]);
  expect((await control.exec(id)).status).toBe(200);
  expect(control.node.execs.at(-1)?.machineId).toBe(`${id}-2`);
  // It can be paused and woken again.
  await pause(id);
  expect((await control.exec(id)).status).toBe(200);
  expect(control.node.execs.at(-1)?.machineId).toBe(`${id}-3`);
});

test("a session that was paused in the backup and woken since is live", async () => {
  const id = await createPaused();
  const restore = await backUp(id);
  await resume(id);
  await restore();
  await startService();
  await control.until(id, "live");
  expect(await rowOf(id)).toMatchObject({ incarnation: 2, paused_at: null });
  await untilQuiet(id);
  expect(machinesOf(id)).toEqual([`${id}-2`]);
});

test("of two machines the session keeps the running one, and the other is removed", async () => {
  const id = await control.createLive();
  const restore = await backUp(id);
  await pause(id);
  await resume(id);
  const running = control.node.machines.get(`${id}-2`);
  if (!running) throw new Error("no machine");
  control.node.addMachine(`${id}-3`, "held", running.spec);
  await restore();
  await startService();
  await eventually(() => expect(machinesOf(id)).toEqual([`${id}-2`]));
  expect(await rowOf(id)).toMatchObject({ state: "live", incarnation: 2 });
});

test("a machine that a pause has stopped is continued", async () => {
  const id = await control.createLive();
  const restore = await backUp(id);
  await pause(id);
  await resume(id);
  const machine = control.node.machines.get(`${id}-2`);
  if (!machine) throw new Error("no machine");
  await restore();
  machine.state = "held";
  await startService();
  await eventually(async () => expect((await rowOf(id)).incarnation).toBe(2));
  await eventually(() => expect(control.node.machines.get(`${id}-2`)?.state).toBe("running"));
});

test("the machine gets the network of the session in the backup", async () => {
  const id = await control.createLive({ egress: { mode: "deny", allow: ["example.com"] } });
  const restore = await backUp(id);
  await pause(id);
  await control.ask(`POST /v1/sessions/${id}/egress`, { body: { mode: "allow" } });
  await resume(id);
  expect(control.node.networks.get(`${id}-2`)?.egress.mode).toBe("allow");
  await restore();
  await startService();
  await eventually(() => expect(control.node.networks.get(`${id}-2`)?.egress.mode).toBe("deny"));
  const { body } = await control.ask(`GET /v1/sessions/${id}/egress`);
  expect(body.mode).toBe("deny");
});

test("a session that was paused since the backup is paused, and wakes from its newest saved state", async () => {
  const id = await control.createLive();
  const restore = await backUp(id);
  await pause(id);
  await resume(id);
  await pauseUntilGone(id);
  const { snapshot_id: saved } = await rowOf(id);
  await restore();
  await startService();
  await control.until(id, "paused");
  expect(await rowOf(id)).toMatchObject({ incarnation: 2, snapshot_id: saved });
  expect((await eventsOf(id)).at(-1)).toEqual(["session.paused", "saved_state_found"]);
  expect((await control.exec(id)).status).toBe(200);
  expect(control.node.machines.get(`${id}-3`)?.spec?.snapshot_id).toBe(saved);
});

test("a session that was paused in the backup wakes from a state that was saved after it", async () => {
  const id = await createPaused();
  const restore = await backUp(id);
  await resume(id);
  await pauseUntilGone(id);
  const { snapshot_id: saved } = await rowOf(id);
  await restore();
  await startService();
  await eventually(async () => expect((await rowOf(id)).snapshot_id).toBe(saved));
  expect(await rowOf(id)).toMatchObject({ state: "paused", incarnation: 2 });
  expect((await control.exec(id)).status).toBe(200);
});

test("paused_ttl_ms counts from the catch-up, so that the old row's pause does not end the session", async () => {
  const id = await createPaused();
  const restore = await backUp(id);
  await resume(id);
  await pauseUntilGone(id);
  const { snapshot_id: saved } = await rowOf(id);
  await restore();
  await control.sql.query(
    `update sessions set paused_ttl_ms = 3600000, due_at = now() + interval '1 s',
       paused_at = now() - interval '2 h', state_changed_at = now() - interval '2 h' where id = $1`,
    [id],
  );
  await startService();
  await eventually(async () => expect((await rowOf(id)).snapshot_id).toBe(saved));
  expect((await rowOf(id)).paused_at.getTime()).toBeGreaterThan(Date.now() - 60_000);
  await eventually(async () =>
    expect((await rowOf(id)).due_at.getTime()).toBeGreaterThan(Date.now() + 3_000_000),
  );
  expect((await rowOf(id)).state).toBe("paused");
});

test("a state that was saved before the row's last move is not used when the machine dies", async () => {
  const id = await control.createLive();
  const restore = await backUp(id);
  await pause(id);
  await resume(id);
  await pauseUntilGone(id);
  await restore();
  await control.sql.query("update sessions set state_changed_at = now() where id = $1", [id]);
  await startService();
  await control.until(id, "failed");
});

test("a machine that an interrupted operation of this database left is removed", async () => {
  const id = await createPaused();
  const { network_generation: generation } = await rowOf(id);
  const network = {
    generation: Number(generation),
    egress: { mode: "allow" as const, allow: [] },
    exposed: [],
  };
  control.node.addMachine(`${id}-2`, "running", { network });
  await startService();
  await eventually(() => expect(machinesOf(id)).toEqual([]));
  expect((await rowOf(id)).state).toBe("paused");
});

test("no deadline of the backup is carried out before rows and node are reconciled", async () => {
  const id = await createPaused();
  const restore = await backUp(id);
  await resume(id);
  await restore();
  await control.sql.query(
    "update sessions set paused_ttl_ms = 1, paused_at = now() - interval '1 s', due_at = now() where id = $1",
    [id],
  );
  await startService();
  await eventually(async () => expect((await rowOf(id)).state).not.toBe("paused"));
  expect((await rowOf(id)).state).toBe("live");
});

test("two processes that catch up at the same time move the row once", async () => {
  const id = await control.createLive();
  const restore = await backUp(id);
  await pause(id);
  await resume(id);
  await restore();
  await Promise.all([startService(), startService()]);
  await eventually(async () => expect((await rowOf(id)).incarnation).toBe(2));
  await Promise.all(backups.services.map((service) => service.reconciled()));
  expect((await eventsOf(id)).filter(([, reason]) => reason === "machine_found")).toHaveLength(1);
  expect((await rowOf(id)).state).toBe("live");
});

/** A process is killed while it removes orphans of another one: the next process continues where it stopped. */
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { killAt, killSweepingAt, letClaimsLapse, withMortal } from "../../test-support/mortal-control.ts";

const PATIENCE_MS = 180_000 * SLOWNESS;
/** Claims last five seconds, a snapshot is looked at twice, and the machine may be busy. */
const CLEARED_MS = 60_000;

let control: Control;
beforeAll(async () => {
  // Only the process that is killed runs sweeps.
  control = await startControl({ sweeps: false });
});
afterAll(() => control.close());

const rowOf = async (id: string) =>
  (await control.sql.query("select * from sessions where id = $1", [id])).rows[0];
const machinesOf = (id: string) => [...control.node.machines.keys()].filter((name) => name.startsWith(id));
const snapshots = () => [...control.node.snapshots.keys()];

/** Waits until the sweeps of a process that is not killed have done it. */
const swept = (check: () => Promise<void> | void) =>
  withMortal(control, "none", () => eventually(check, CLEARED_MS));

test(
  "killed at reconcile.removed: the unwanted machine is gone, and the session wakes",
  async () => {
    const id = await control.createLive();
    await killAt(control, "pause.commit", `POST /v1/sessions/${id}/pause`);
    await letClaimsLapse(control, id);
    expect(machinesOf(id)).toEqual([`${id}-1`]);
    await killSweepingAt(control, "reconcile.removed");
    expect(machinesOf(id)).toEqual([]);
    expect(await rowOf(id)).toMatchObject({ state: "paused", op: null });
    expect((await control.exec(id)).status).toBe(200);
    expect(machinesOf(id)).toEqual([`${id}-2`]);
  },
  PATIENCE_MS,
);

test(
  "killed at take_over.claimed: the pause is taken over again, and completes",
  async () => {
    const id = await control.createLive();
    await killAt(control, "pause.intent", `POST /v1/sessions/${id}/pause`);
    await letClaimsLapse(control, id);
    await killSweepingAt(control, "take_over.claimed");
    expect(await rowOf(id)).toMatchObject({ state: "live", op: "pause" });
    await letClaimsLapse(control, id);
    await swept(async () => expect(await rowOf(id)).toMatchObject({ state: "paused", op: null }));
    expect((await control.exec(id)).status).toBe(200);
  },
  PATIENCE_MS,
);

test.each(["release.machines", "release.snapshots"])(
  "killed at %s: nothing of the session remains, and its row is marked as released",
  async (point) => {
    const id = await control.createLive();
    expect((await control.ask(`POST /v1/sessions/${id}/pause`)).status).toBe(200);
    const { snapshot_id: saved } = await rowOf(id);
    expect(snapshots()).toContain(saved);
    await killAt(control, point, `DELETE /v1/sessions/${id}`);
    expect(await rowOf(id)).toMatchObject({ state: "destroyed", machine_released_at: null });
    expect(snapshots().includes(saved)).toBe(point === "release.machines");
    await swept(async () => expect((await rowOf(id)).machine_released_at).not.toBe(null));
    expect([machinesOf(id), snapshots().includes(saved)]).toEqual([[], false]);
  },
  PATIENCE_MS,
);

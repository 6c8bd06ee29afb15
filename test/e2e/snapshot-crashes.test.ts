/**
 * The daemon dies at every named point of a capture, one after the other, on the same machine and the same snapshot.
 * Each time the caller repeats the same call, as control does.
 */
import { existsSync, readdirSync } from "node:fs";
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { MachineStatus, SnapshotList } from "@vivarium/contract/node";
import { randomId } from "@vivarium/kit/id";
import { size } from "@vivarium/kit/test-support/sizes";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startSpec } from "../contract/contracted-node.ts";
import { eventually } from "../support/eventually.ts";
import { countIn, expectCounting, startCounter } from "../support/guest-counter.ts";
import { type NodeCaller, nodeCaller } from "../support/node-caller.ts";
import { type Service, servicePid, startService, suspendControl } from "../support/service.ts";

const BEFORE_PUBLISHED = ["journal", "freeze", "stop", "instant", "synced", "manifest"];
const POINTS = [...BEFORE_PUBLISHED, "published"].map((name) => `capture.${name}`);
/** Only after the instant does a guest that continues differ from a guest that stays stopped. */
const FROM = { continue: size({ ci: POINTS.indexOf("capture.instant"), full: 0 }), hold: 0 };
/** The supervisor waits up to five seconds before it starts a daemon again that keeps dying. */
const BACK_MS = 90_000;

const machine = `${randomId()}-1`;
const machinePath = `/v1/machines/${machine}`;
let service: Service;
let node: NodeCaller;
let control: { resume: () => void } | undefined;

beforeAll(async () => {
  service = await startService({ env: { VIV_CRASH_AT: POINTS.join(",") } });
  node = nodeCaller(service.facts.nodeSocket);
  control = suspendControl(service.facts);
  expect(await node.call("PUT", machinePath, startSpec())).toMatchObject({ status: 200 });
  await startCounter(node, machine);
});
afterAll(async () => {
  await eventually(() => node?.call("DELETE", machinePath), BACK_MS).catch(() => {});
  control?.resume();
  await service?.stop();
});

test.each(["continue", "hold"] as const)(
  "a capture with %s, the daemon killed at each of its points",
  async (after) => {
    const points = POINTS.slice(FROM[after]);
    for (const point of POINTS) await writeFile(marker(point), "");
    for (const point of points) await rm(marker(point));
    const snapshot = `pau_${randomId()}`;
    const path = `/v1/snapshots/${snapshot}`;
    const save = () => node.call("PUT", path, { machine_id: machine, after });

    for (const point of points.slice(0, -1)) {
      await expectCrash(save, point);
      expect(await status(), point).toMatchObject({ state: "running" });
      expect(readdirSync(join(service.facts.dataDir, "pool/s")), point).not.toContain(snapshot);
      expect(await node.call("GET", path), point).toMatchObject({ status: 404 });
      await expectCounting(node, machine);
    }

    await expectCrash(save, "capture.published");
    const state = after === "hold" ? "held" : "running";
    expect(await status()).toMatchObject({ state });
    const saved = await node.call("GET", path);
    expect(saved).toMatchObject({ status: 200, body: { state: "ready" } });
    expect(await save()).toEqual(saved);
    expect(await status()).toMatchObject({ state });

    await expectWhole(snapshot);
    expect(await node.call("POST", `${machinePath}/continue`)).toMatchObject({ body: { state: "running" } });
    await expectCounting(node, machine);
    expect(await node.call("DELETE", path)).toMatchObject({ status: 204 });
  },
);

test("a snapshot that loses its manifest outlives the daemon, and is reported as damaged", async () => {
  const [lost, whole] = [`chk_${randomId()}`, `chk_${randomId()}`];
  const path = `/v1/snapshots/${lost}`;
  for (const id of [lost, whole]) {
    const made = await node.call("PUT", `/v1/snapshots/${id}`, { machine_id: machine, after: "continue" });
    expect(made).toMatchObject({ status: 200 });
  }
  const dir = join(service.facts.dataDir, "pool/s", lost);
  await rm(join(dir, "manifest.json"));
  const left = readdirSync(dir).toSorted();
  process.kill(servicePid(service.facts, "node"), "SIGKILL");
  await eventually(status, BACK_MS);
  expect(readdirSync(dir).toSorted()).toEqual(left);
  const damaged = { status: 500, body: { code: "snapshot_damaged" } };
  expect(await node.call("GET", path)).toMatchObject(damaged);
  expect(await node.call("PUT", path, { machine_id: machine, after: "continue" })).toMatchObject(damaged);
  const { snapshots } = SnapshotList.parse((await node.call("GET", "/v1/snapshots")).body);
  expect(snapshots.map(({ snapshot_id: id }) => id)).toEqual([whole]);
  for (const id of [lost, whole])
    expect(await node.call("DELETE", `/v1/snapshots/${id}`)).toMatchObject({ status: 204 });
  expect(existsSync(dir)).toBe(false);
});

const marker = (point: string) => join(service.facts.dataDir, `crashed-at-${point}`);

async function expectCrash(call: () => Promise<unknown>, point: string): Promise<void> {
  await expect(call(), point).rejects.toThrow();
  expect(existsSync(marker(point)), point).toBe(true);
  await eventually(status, BACK_MS);
}

async function status(): Promise<MachineStatus> {
  return MachineStatus.parse((await node.call("GET", machinePath)).body);
}

/** Another machine continues from the snapshot, from a number that the captured machine had reached. */
async function expectWhole(snapshot: string): Promise<void> {
  const twin = `${randomId()}-1`;
  const spec = startSpec({ snapshot_id: snapshot, resume: true });
  expect(await node.call("PUT", `/v1/machines/${twin}`, spec)).toMatchObject({ status: 200 });
  expect(await countIn(node, twin)).toBeGreaterThan(0);
  await expectCounting(node, twin);
  expect(await node.call("DELETE", `/v1/machines/${twin}`)).toMatchObject({ status: 204 });
}

/** The daemon dies while it copies, removes, stops and repairs; the caller repeats its call. */
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { MachineList, MachineStatus, SnapshotStatus } from "@vivarium/contract/node";
import { randomId } from "@vivarium/kit/id";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startSpec } from "../contract/contracted-node.ts";
import { eventually } from "../support/eventually.ts";
import { expectCounting, startCounter } from "../support/guest-counter.ts";
import { AHEAD, machinePid, machineTraces } from "../support/machine-traces.ts";
import { type NodeCaller, nodeCaller } from "../support/node-caller.ts";
import { type Service, servicePid, startService, suspendControl } from "../support/service.ts";

const POINTS = [
  ...["copy.begin", "copy.done", "remove.renamed", "stop.killed", "stop.released"],
  ...["reconcile.adopted", "reconcile.slot"],
  ...["capture_disk.freeze", "capture_disk.stop", "capture_disk.instant", "capture_disk.synced"],
  ...["capture_disk.manifest", "copy_disk.begin"],
];
/** The supervisor waits up to five seconds before it starts a daemon again that keeps dying. */
const BACK_MS = 90_000;
const SLOTS = "/run/vivarium/slots";

const machine = `${randomId()}-1`;
const pathOf = (id: string) => `/v1/machines/${id}`;
let service: Service;
let node: NodeCaller;
let control: { resume: () => void } | undefined;

beforeAll(async () => {
  service = await startService({ env: { VIV_CRASH_AT: POINTS.join(",") } });
  for (const point of POINTS) await writeFile(marker(point), "");
  node = nodeCaller(service.facts.nodeSocket);
  control = suspendControl(service.facts);
  expect(await node.call("PUT", pathOf(machine), startSpec())).toMatchObject({ status: 200 });
  await startCounter(node, machine);
});
afterAll(async () => {
  await eventually(() => node?.call("DELETE", pathOf(machine)), BACK_MS).catch(() => {});
  control?.resume();
  await service?.stop();
});

const marker = (point: string) => join(service.facts.dataDir, `crashed-at-${point}`);
const arm = (point: string) => rm(marker(point), { force: true });
const snapshotFolders = () => readdirSync(join(service.facts.dataDir, "pool/s"));
const machines = async () => MachineList.parse((await node.call("GET", "/v1/machines")).body).machines;

/** The call gets no answer; the daemon is back when this returns. */
async function diesAt(point: string, call: () => Promise<unknown>): Promise<void> {
  await arm(point);
  await expect(call(), point).rejects.toThrow();
  expect(existsSync(marker(point)), point).toBe(true);
  await isBack();
}

async function isBack(): Promise<void> {
  await eventually(async () => MachineStatus.parse((await node.call("GET", pathOf(machine))).body), BACK_MS);
}

async function snapshotOf(source: object): Promise<string> {
  const id = `chk_${randomId()}`;
  expect(await node.call("PUT", `/v1/snapshots/${id}`, source)).toMatchObject({ status: 200 });
  return id;
}

test("a copy of a snapshot that the daemon does not end is no snapshot, and one that it ends is whole", async () => {
  const source = await snapshotOf({ machine_id: machine, after: "continue" });
  for (const point of ["copy.begin", "copy.done"]) {
    const copy = `chk_${randomId()}`;
    const path = `/v1/snapshots/${copy}`;
    const make = () => node.call("PUT", path, { snapshot_id: source });
    await diesAt(point, make);
    const isMade = point === "copy.done";
    expect(snapshotFolders().includes(copy), point).toBe(isMade);
    expect(await node.call("GET", path), point).toMatchObject({ status: isMade ? 200 : 404 });
    expect(SnapshotStatus.parse((await make()).body), point).toMatchObject({ state: "ready" });
    const twin = pathOf(`${randomId()}-1`);
    expect(await node.call("PUT", twin, startSpec({ snapshot_id: copy })), point).toMatchObject({
      status: 200,
    });
    expect(await node.call("DELETE", twin)).toMatchObject({ status: 204 });
    expect(await node.call("DELETE", path)).toMatchObject({ status: 204 });
  }
  expect(await node.call("DELETE", `/v1/snapshots/${source}`)).toMatchObject({ status: 204 });
  await expectCounting(node, machine);
});

test("a disk that the daemon does not end to save is no snapshot, and its machine runs on", async () => {
  const whole = await snapshotOf({ machine_id: machine, after: "continue" });
  const live = { machine_id: machine, after: "continue", memory: false };
  const saved = { snapshot_id: whole, memory: false };
  for (const point of POINTS.filter((name) => /_disk\./.test(name))) {
    const id = `tpl_${randomId()}`;
    const path = `/v1/snapshots/${id}`;
    const make = () => node.call("PUT", path, point === "copy_disk.begin" ? saved : live);
    await diesAt(point, make);
    expect(snapshotFolders().includes(id), point).toBe(false);
    await expectCounting(node, machine);
    expect(SnapshotStatus.parse((await make()).body), point).toMatchObject({ state: "ready", memory: false });
    expect(await node.call("DELETE", path)).toMatchObject({ status: 204 });
  }
  expect(await node.call("DELETE", `/v1/snapshots/${whole}`)).toMatchObject({ status: 204 });
  await expectCounting(node, machine);
});

test("a snapshot whose removal the daemon does not end is gone, with all its files", async () => {
  const id = await snapshotOf({ machine_id: machine, after: "continue" });
  const remove = () => node.call("DELETE", `/v1/snapshots/${id}`);
  await diesAt("remove.renamed", remove);
  expect(await node.call("GET", `/v1/snapshots/${id}`)).toMatchObject({ status: 404 });
  expect(snapshotFolders()).toEqual([]);
  expect(await remove()).toMatchObject({ status: 204 });
  await expectCounting(node, machine);
});

async function startAnother(): Promise<{ id: string; path: string; slot: number }> {
  const id = `${randomId()}-1`;
  expect(await node.call("PUT", pathOf(id), startSpec())).toMatchObject({ status: 200 });
  const entry = join(service.facts.dataDir, "pool/m", id, "machine.json");
  return { id, path: pathOf(id), slot: JSON.parse(readFileSync(entry, "utf8")).slot };
}

test.each([
  ["stop.killed", "has ended"],
  // Its slot may have a new owner by now: the slot must not be in the journal of this machine.
  ["stop.released", "is unknown"],
])(
  "a machine whose stop the daemon does not end, at %s, %s, and is deleted by the same call",
  async (point, becomes) => {
    const { id, path } = await startAnother();
    const remove = () => node.call("DELETE", path);
    await diesAt(point, remove);
    const ended = expect.objectContaining({ machine_id: id, state: "ended" });
    const known = await machines();
    if (becomes === "has ended") expect(known).toContainEqual(ended);
    else expect(known.map(({ machine_id }) => machine_id)).toEqual([machine]);
    expect(await remove()).toMatchObject({ status: 204 });
    expect(await node.call("GET", path)).toMatchObject({ status: 404 });
    await expectCounting(node, machine);
    await expectClean();
  },
);

test("a slot that was freed before the daemon's start may have a new owner, whether or not its machine survives", async () => {
  const { id, path, slot } = await startAnother();
  const [sessionId = ""] = id.split("-");
  const file = join(SLOTS, String(slot));
  process.kill(service.facts.pid, "SIGSTOP");
  try {
    for (const pid of [servicePid(service.facts, "node"), machinePid(service.facts.dataDir, sessionId)])
      process.kill(pid, "SIGKILL");
    // As another service of this host would take it.
    const claim = `${SLOTS}-of-${process.pid}`;
    await writeFile(claim, process.execPath);
    // At once: a slot that is free for a moment may be taken by a service that runs beside this one.
    await rename(claim, file);
  } finally {
    process.kill(service.facts.pid, "SIGCONT");
  }
  await isBack();
  expect(await machines()).toContainEqual(expect.objectContaining({ machine_id: id, state: "ended" }));
  expect(await node.call("DELETE", path)).toMatchObject({ status: 204 });
  expect(existsSync(`/run/netns/viv-${slot}`)).toBe(true);
  // A slot is freed some moments after its namespace is gone.
  await sleep(1_000);
  expect(readFileSync(file, "utf8")).toBe(process.execPath);
  for (const args of [`link del viv${slot}`, `netns del viv-${slot}`]) execFileSync("ip", args.split(" "));
  await rm(file);
  await expectClean();
});

test.each(["reconcile.adopted", "reconcile.slot"])(
  "a start that ends at %s is made again: the machine goes on, and nothing is left over",
  async (point) => {
    // A namespace that was made ahead is among those that a start finds without an owner.
    await eventually(() => expect(machineTraces(service.facts.dataDir).slots).toBeGreaterThan(1), BACK_MS);
    await arm(point);
    process.kill(servicePid(service.facts, "node"), "SIGKILL");
    await eventually(() => expect(existsSync(marker(point))).toBe(true), BACK_MS);
    await isBack();
    await expectCounting(node, machine);
    await expectClean();
  },
);

async function expectClean(): Promise<void> {
  expect((await machines()).map(({ machine_id: id }) => id)).toEqual([machine]);
  await eventually(() => {
    const { folders, slots, netns, links, uids } = machineTraces(service.facts.dataDir);
    expect({ folders, uids }).toEqual({ folders: [machine], uids: 1 });
    expect([netns, links]).toEqual([slots, slots]);
    expect(slots).toBeLessThanOrEqual(1 + AHEAD);
  }, BACK_MS);
}

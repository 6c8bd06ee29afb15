/** The pool is full: growth is refused, running machines wait and continue unharmed, nothing is left half-made. */
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { randomId } from "@vivarium/kit/id";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startSpec } from "../contract/contracted-node.ts";
import { eventually } from "../support/eventually.ts";
import { expectCounting, startCounter } from "../support/guest-counter.ts";
import { sh } from "../support/http.ts";
import { type NodeAnswer, type NodeCaller, nodeCaller } from "../support/node-caller.ts";
import { type Service, servicePid, suspendControl } from "../support/service.ts";
import { makeSmallPool, mib, type SmallPool, startServiceIn } from "../support/small-pool.ts";

const FLOOR = mib(32);
const ROOM = mib(400);
/** More than is free, less than the guest can keep in its memory for long. */
const WRITER = `
head -c ${mib(64)} /dev/urandom | tee big | sha256sum > sum
sync
sudo sh -c 'echo 3 > /proc/sys/vm/drop_caches'
touch done
`;

const machine = `${randomId()}-1`;
const machinePath = `/v1/machines/${machine}`;
let pool: SmallPool;
let service: Service;
let node: NodeCaller;
let control: { resume: () => void } | undefined;

beforeAll(async () => {
  pool = await makeSmallPool(mib(3 * 1024));
  service = await startServiceIn(pool, FLOOR);
  node = nodeCaller(service.facts.nodeSocket);
  control = suspendControl(service.facts);
  expect(await node.call("PUT", machinePath, startSpec())).toMatchObject({ status: 200 });
  await startCounter(node, machine);
});
afterAll(async () => {
  await eventually(() => node?.call("DELETE", machinePath), 30_000).catch(() => {});
  control?.resume();
  await service?.stop().finally(() => pool.remove());
});

test("below the floor neither a machine nor a snapshot is made, and the machine keeps running", async () => {
  pool.leaveFree(FLOOR - mib(4));
  const other = `/v1/machines/${randomId()}-1`;
  expectPressure(await node.call("PUT", other, startSpec()));
  expect(await node.call("GET", other)).toMatchObject({ status: 404 });
  for (const after of ["continue", "hold"]) {
    expectPressure(await save(after));
    expect(await node.call("GET", machinePath)).toMatchObject({ body: { state: "running" } });
    expect(snapshotFolders()).toEqual([]);
    await expectCounting(node, machine);
  }
});

test("without a single free block a capture is refused, and the machine keeps running", async () => {
  pool.leaveFree(0);
  for (const after of ["continue", "hold"]) expectPressure(await save(after));
  expect(snapshotFolders()).toEqual([]);
  pool.leaveFree(ROOM);
  await expectCounting(node, machine);
});

test("a guest whose write finds no space waits, also while the daemon dies, and continues unharmed", async () => {
  pool.leaveFree(mib(24));
  await node.exec(machine, { argv: sh(`(${WRITER}) > /dev/null 2>&1 &`) });
  await eventually(() => expect(pool.freeBytes()).toBeLessThan(mib(4)), 120_000);
  await eventually(expectWaiting, 30_000, 1000);
  process.kill(servicePid(service.facts, "node"), "SIGKILL");
  await eventually(expectWaiting, 30_000);
  expect(await node.call("GET", machinePath)).toMatchObject({ body: { state: "running" } });

  pool.leaveFree(ROOM);
  await expectCounting(node, machine);
  await eventually(() => output("test -e done && echo done"), 90_000, 1000);
  expect(await output("sha256sum < big")).toBe(await output("cat sum"));
  expect(await output("dmesg 2> /dev/null | grep -ci 'i/o error' || true")).toBe("0\n");
});

test("once there is disk space again, machines are captured and started", async () => {
  const answer = await save("continue");
  expect(answer).toMatchObject({ status: 200, body: { state: "ready" } });
  const { snapshot_id } = answer.body as { snapshot_id: string };
  const twin = `${randomId()}-1`;
  const spec = startSpec({ snapshot_id });
  const started = await node.call("PUT", `/v1/machines/${twin}`, spec);
  expect(started).toMatchObject({ status: 200, body: { state: "running" } });
  expect((await node.exec(twin, { argv: ["cat", "sum"] })).stdout.toString()).toBe(await output("cat sum"));
  await node.call("DELETE", `/v1/machines/${twin}`);
});

function save(after: string): Promise<NodeAnswer> {
  return node.call("PUT", `/v1/snapshots/chk_${randomId()}`, { machine_id: machine, after });
}

function expectPressure(answer: NodeAnswer): void {
  expect(answer).toMatchObject({ status: 503, body: { code: "disk_pressure" } });
}

/** Only a machine that QEMU has stopped for lack of disk space refuses with these words. */
async function expectWaiting(): Promise<void> {
  const answer = await save("continue");
  expectPressure(answer);
  expect(answer.body).toMatchObject({ message: expect.stringContaining("waits for free disk") });
}

async function output(script: string): Promise<string> {
  const done = await node.exec(machine, { argv: sh(script), timeout_ms: 100_000 * SLOWNESS });
  expect(done).toMatchObject({ status: 200, exit: { exit_code: 0 } });
  return done.stdout.toString();
}

const snapshotFolders = () => readdirSync(join(service.facts.dataDir, "pool/s"));

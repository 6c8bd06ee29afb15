/** A state that was saved on one host wakes on another one, which has nothing but its archive and the baseline. */
import { readdirSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SnapshotStatus } from "@vivarium/contract/node";
import { randomId } from "@vivarium/kit/id";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ChunksInObjects } from "../../packages/archive/src/chunk-store.ts";
import { DirectoryStore } from "../../packages/objects/src/directory-store.ts";
import { machinePath, newMachineId, sh, startSpec } from "../contract/contracted-node.ts";
import { mustPack, newSecret, Space, unpack } from "../support/archive-calls.ts";
import { countIn, expectCounting, startCounter } from "../support/guest-counter.ts";
import { type NodeCaller, nodeCaller } from "../support/node-caller.ts";
import { type Service, startService, suspendControl } from "../support/service.ts";

const MIB = 1024 * 1024;
/** In memory and on the disk, and none of it can be compressed. */
const CONTENT_BYTES = 6 * MIB;
/** The second pause of the session in docs/design/cold-tier.md stores half a MiB. */
const MOST_SECOND_BYTES = 3 * MIB;

interface Host {
  service: Service;
  node: NodeCaller;
  control: { resume: () => void };
}

const hosts: Host[] = [];
let dir: string;
let space: Space;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "cold-states-"));
  space = new Space(new ChunksInObjects(await DirectoryStore.open(dir), "o/archives/s/"));
  for (const _host of ["saves", "wakes"]) {
    const service = await startService({ env: { VIV_ARCHIVE_NICENESS: "0" } });
    // Control soon ends what no row of its own names.
    const control = suspendControl(service.facts);
    hosts.push({ service, control, node: nodeCaller(service.facts.nodeSocket) });
  }
});
afterAll(async () => {
  for (const { service, control } of hosts) {
    control.resume();
    await service.stop();
  }
  if (dir) await rm(dir, { recursive: true, force: true });
});

async function run(node: NodeCaller, machineId: string, script: string): Promise<string> {
  const { stdout, stderr, exit } = await node.exec(machineId, { argv: sh(script) });
  expect({ code: exit?.exit_code, stderr: String(stderr) }).toMatchObject({ code: 0 });
  return String(stdout);
}

/** Saves a machine as a pause does, and removes it. */
async function pause(node: NodeCaller, machineId: string): Promise<SnapshotStatus> {
  const body = { machine_id: machineId, after: "hold" };
  const made = await node.call("PUT", `/v1/snapshots/pau_${randomId()}`, body);
  expect(made).toMatchObject({ status: 200 });
  expect(await node.call("DELETE", machinePath(machineId))).toMatchObject({ status: 204 });
  return SnapshotStatus.parse(made.body);
}

const poolOf = ({ service }: Host) => readdirSync(join(service.facts.dataDir, "pool/s"));

test("a paused session wakes on an empty host with its memory, processes and files, and its next archive costs its change", async () => {
  const [saves, wakes] = hosts as [Host, Host];
  const first = newMachineId();
  expect(await saves.node.call("PUT", machinePath(first), startSpec())).toMatchObject({ status: 200 });
  await run(
    saves.node,
    first,
    `head -c ${CONTENT_BYTES / 2} /dev/urandom > kept && head -c ${CONTENT_BYTES / 2} /dev/urandom > /dev/shm/kept && sha256sum kept /dev/shm/kept > sums`,
  );
  await startCounter(saves.node, first);
  const saved = await pause(saves.node, first);
  const id = saved.snapshot_id;
  const asked = {
    space,
    snapshotId: id,
    archiveId: `arc_${randomId()}`,
    key: newSecret(),
    base: saved.baseline_id,
  };
  expect(asked.base).toMatch(/^bas_/);
  const packed = await mustPack(saves.node, asked);
  expect(packed.sent_bytes).toBeGreaterThan(CONTENT_BYTES);
  // Its memory alone has a GiB, and its baseline's more than 150 MiB.
  expect(packed.differing_bytes).toBeLessThan(80 * MIB);
  expect(await saves.node.call("DELETE", `/v1/snapshots/${id}`)).toMatchObject({ status: 204 });
  expect(poolOf(saves)).toEqual([]);

  expect(poolOf(wakes)).toEqual([]);
  const came = await unpack(wakes.node, { ...asked, contents: packed.contents });
  expect(came).toMatchObject({ unpacked: { snapshot_id: id, baseline_id: asked.base } });
  expect(poolOf(wakes)).toEqual([id]);
  const second = newMachineId();
  const woken = startSpec({ snapshot_id: id, resume: true });
  expect(await wakes.node.call("PUT", machinePath(second), woken)).toMatchObject({ status: 200 });
  expect(await run(wakes.node, second, "sha256sum -c sums")).toMatch(/kept: OK\n.*kept: OK/);
  await expectCounting(wakes.node, second);
  expect(await countIn(wakes.node, second)).toBeGreaterThan(0);

  await run(wakes.node, second, "echo one more line >> sums");
  const later = await pause(wakes.node, second);
  const again = { ...asked, snapshotId: later.snapshot_id, archiveId: `arc_${randomId()}`, key: newSecret() };
  const change = await mustPack(wakes.node, again);
  // It has all that the first one has, and sends none of that.
  expect(change.differing_bytes).toBeGreaterThan(CONTENT_BYTES);
  expect(change.sent_bytes).toBeLessThan(MOST_SECOND_BYTES);
  expect(change.sent_bytes).toBeLessThan(packed.sent_bytes / 2);
});

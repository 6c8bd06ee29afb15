/** A state that was saved on one host wakes on another one, which has nothing but its archive and the baseline. */
import { readdirSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SnapshotStatus, STATE_KEY_HEADER } from "@vivarium/contract/node";
import { randomId } from "@vivarium/kit/id";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ChunksInObjects } from "../../packages/archive/src/chunk-store.ts";
import { DirectoryStore } from "../../packages/objects/src/directory-store.ts";
import { machinePath, newMachineId, sh, startSpec } from "../contract/contracted-node.ts";
import { mustPack, newSecret, Space, unpack } from "../support/archive-calls.ts";
import { expectCounting, startCounter } from "../support/guest-counter.ts";
import { type NodeCaller, nodeCaller } from "../support/node-caller.ts";
import { type Service, startService, suspendControl } from "../support/service.ts";

const MIB = 1024 * 1024;
/** In memory and on the disk, and none of it can be compressed. */
const CONTENT_BYTES = 24 * MIB;
/**
 * A window of memory is sent again with all that it has if a page of it has changed, and the guest's pages of files are
 * scattered. Here it is 4 MiB, after 38 MiB for the first pause.
 */
const MOST_SECOND_BYTES = 10 * MIB;

interface Host {
  service: Service;
  node: NodeCaller;
  control: { resume: () => void };
}

const hosts: Host[] = [];
let dir: string;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "cold-states-"));
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

type StateKey = Record<string, string>;

/** Saves a machine as a pause does, and removes it. */
async function pause(node: NodeCaller, machineId: string, key: StateKey): Promise<SnapshotStatus> {
  const body = { machine_id: machineId, after: "hold" };
  const made = await node.call("PUT", `/v1/snapshots/pau_${randomId()}`, body, key);
  expect(made).toMatchObject({ status: 200 });
  expect(await node.call("DELETE", machinePath(machineId))).toMatchObject({ status: 204 });
  return SnapshotStatus.parse(made.body);
}

async function start(node: NodeCaller, key: StateKey, over: object = {}): Promise<string> {
  const machineId = newMachineId();
  expect(await node.call("PUT", machinePath(machineId), startSpec(over), key)).toMatchObject({ status: 200 });
  return machineId;
}

const poolOf = ({ service }: Host) => readdirSync(join(service.facts.dataDir, "pool/s"));

const cases: [string, StateKey][] = [
  ["plain", {}],
  ["sealed", { [STATE_KEY_HEADER]: newSecret() }],
];

test.for(cases)(
  "a paused session, %s, wakes on an empty host with its memory, processes and files, and its next archive costs its change",
  async ([label, stateKey]) => {
    const [saves, wakes] = hosts as [Host, Host];
    const objects = await DirectoryStore.open(dir);
    const space = new Space(new ChunksInObjects(objects, `o/archives/${label}/`));
    const first = await start(saves.node, stateKey);
    const random = (file: string) => `head -c ${CONTENT_BYTES / 2} /dev/urandom > ${file}`;
    const [onDisk, inMemory] = ["kept", "/dev/shm/kept"];
    await run(
      saves.node,
      first,
      `${random(onDisk)} && ${random(inMemory)} && sha256sum ${onDisk} ${inMemory} > sums`,
    );
    await startCounter(saves.node, first);
    const { snapshot_id: id, baseline_id: base } = await pause(saves.node, first, stateKey);
    expect(base).toMatch(/^bas_/);
    const newArchive = () => ({ archiveId: `arc_${randomId()}`, key: newSecret() });
    const asked = { space, snapshotId: id, base, ...newArchive() };
    const packed = await mustPack(saves.node, asked);
    expect(packed.sent_bytes).toBeGreaterThan(CONTENT_BYTES);
    // The baseline's memory alone has more than 150 MiB.
    expect(packed.differing_bytes).toBeLessThan(110 * MIB);
    expect(await saves.node.call("DELETE", `/v1/snapshots/${id}`)).toMatchObject({ status: 204 });
    expect(poolOf(saves)).toEqual([]);

    expect(poolOf(wakes)).toEqual([]);
    const came = await unpack(wakes.node, { ...asked, contents: packed.contents });
    expect(came).toMatchObject({ unpacked: { snapshot_id: id, baseline_id: base } });
    expect(poolOf(wakes)).toEqual([id]);
    const second = await start(wakes.node, stateKey, { snapshot_id: id, resume: true });
    expect(await run(wakes.node, second, "sha256sum -c sums")).toMatch(/kept: OK\n.*kept: OK/);
    await expectCounting(wakes.node, second);

    await run(wakes.node, second, "echo one more line >> sums");
    const later = await pause(wakes.node, second, stateKey);
    const change = await mustPack(wakes.node, { ...asked, snapshotId: later.snapshot_id, ...newArchive() });
    // It has all that the first one has.
    expect(change.differing_bytes).toBeGreaterThan(CONTENT_BYTES);
    // Sealed pages of memory are others at each save, so of a sealed state the disk alone is found again.
    const most = label === "plain" ? MOST_SECOND_BYTES : packed.sent_bytes - CONTENT_BYTES / 4;
    expect(change.sent_bytes).toBeLessThan(most);
    for (const snapshot of [id, later.snapshot_id])
      expect(await wakes.node.call("DELETE", `/v1/snapshots/${snapshot}`)).toMatchObject({ status: 204 });
  },
);

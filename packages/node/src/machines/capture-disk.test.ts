/** Disks that are saved without memory, with a machine that answers without a QEMU. */
import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readdir, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import type { Frozen } from "@vivarium/contract/guest";
import { randomId } from "@vivarium/kit/id";
import { createLog } from "@vivarium/kit/log";
import { MIB } from "@vivarium/kit/sizes";
import { afterEach, beforeEach, expect, test } from "vitest";
import { makeLoadable, QEMU } from "../../test-support/loadable.ts";
import { DiskGate } from "../disks/gate.ts";
import {
  filesOf,
  type Loadable,
  type Manifest,
  publishManifest,
  readManifest,
  verifyLoadable,
} from "../snapshots/manifest.ts";
import { StateKey } from "../snapshots/state-key.ts";
import { SumsThread } from "../snapshots/sums-thread.ts";
import { SnapshotTable } from "../snapshots/table.ts";
import { captureDisk } from "./capture-disk.ts";
import type { Machine } from "./machine.ts";
import { type SaveDeps, saveSnapshot } from "./save-snapshot.ts";

const log = createLog("test", "silent");
const newId = () => `tpl_${randomId()}`;
const stateKey = StateKey.parse(randomBytes(32).toString("base64url"));

let dataDir: string;
let sums: SumsThread;
let snapshots: SnapshotTable;
let deps: SaveDeps;
beforeEach(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), "disk-alone-"));
  sums = new SumsThread({ log });
  snapshots = new SnapshotTable({ dataDir, log });
  await mkdir(snapshots.dirOf(""), { recursive: true });
  deps = { snapshots, sums, qemu: QEMU, log, gate: new DiskGate([dataDir], 0) } as SaveDeps;
});
afterEach(async () => {
  await sums.close();
  await rm(dataDir, { recursive: true, force: true });
});

async function save(frozen: () => Promise<Frozen>, key?: StateKey) {
  const parent = await makeLoadable(path.join(dataDir, "parent"));
  const machineDir = path.join(dataDir, "machine");
  await mkdir(machineDir, { recursive: true });
  await writeFile(path.join(machineDir, "disk.qcow2"), "the machine's own");
  const asked: string[] = [];
  const machine = {
    ...{ id: "machine", isRunning: true, spec: {} },
    qmp: { execute: async (command: string) => void asked.push(command) },
    agent: { freeze: frozen, resumed: async () => ({ reseeded: true }) },
  } as unknown as Machine;
  const target = snapshots.dirOf(newId());
  const spec = { machine_id: `${randomId()}-1`, after: "continue", memory: false } as const;
  const made = captureDisk(deps, { machine, machineDir, parent, target, spec, stateKey: key });
  return { made, asked, target, parent };
}

test("a disk is saved without memory and device state, and its machine continues", async () => {
  const { made, asked, target, parent } = await save(async () => ({ flushed: true }));
  const { manifest } = await made;
  expect(asked).toEqual(["stop", "cont"]);
  const names = ["mem", "mem.sums", "disk.qcow2", "layer.qcow2", "base.raw"];
  expect(filesOf(manifest).toSorted()).toEqual(names.toSorted());
  expect((await readdir(target)).toSorted()).toEqual([...names, "manifest.json"].toSorted());
  const memory = await stat(path.join(target, "mem"));
  expect([memory.size, memory.blocks]).toEqual([manifest.mem_mb * MIB, 0]);
  expect(manifest).toMatchObject({ kind: "snapshot", memory: false, flushed: true });
  expect(manifest.memory).toBe(false);
  await verifyLoadable(deps, { dir: target, manifest: await readManifest(target) });
  // Damage of what it has is found.
  await writeFile(path.join(dataDir, "other"), "another disk");
  await rm(path.join(target, "disk.qcow2"));
  await writeFile(path.join(target, "disk.qcow2"), "the machine's 0wn");
  await expect(verifyLoadable(deps, { dir: target, manifest })).rejects.toThrow("disk.qcow2 is damaged");
  expect(existsSync(path.join(parent.dir, "state"))).toBe(true);
});

test("a sealed disk keeps its key's id and what is below it", async () => {
  const { made, target, parent } = await save(async () => ({ flushed: true }), stateKey);
  const { manifest } = await made;
  expect(manifest.sealed).toMatchObject({ key_id: stateKey.id, label: path.basename(target) });
  const inode = async (dir: string, name: string) => (await stat(path.join(dir, name))).ino;
  expect(await inode(target, "under.qcow2")).toBe(await inode(parent.dir, "disk.qcow2"));
  expect(filesOf(manifest)).not.toContain("mem.sealed");
  await verifyLoadable(deps, { dir: target, manifest });
});

test.each<[string, () => Promise<Frozen>]>([
  ["did not write all to its disk in time", async () => ({ flushed: false })],
  ["has an agent that does not say so", async () => ({})],
  [
    "cannot be frozen",
    async () => {
      throw new Error("no");
    },
  ],
])("nothing is kept of a guest that %s, and it continues", async (_, frozen) => {
  const { made, asked, target } = await save(frozen);
  await expect(made).rejects.toThrow();
  expect(asked).toEqual(["cont"]);
  expect(existsSync(target)).toBe(false);
});

async function publish(over: Partial<Manifest>): Promise<Loadable & { id: string }> {
  const id = newId();
  const { dir, manifest } = await makeLoadable(snapshots.dirOf(id));
  await publishManifest(dir, { ...manifest, ...over });
  return { id, dir, manifest };
}

test("of a snapshot that had everything on its disk, the disk is shared, and of another it is refused", async () => {
  const whole = await publish({ flushed: true });
  const copy = newId();
  const { dir, manifest } = await saveSnapshot(deps, copy, { snapshot_id: whole.id, memory: false });
  expect(manifest).toMatchObject({ memory: false, flushed: true });
  const inode = async (of: string, name: string) => (await stat(path.join(of, name))).ino;
  expect(await inode(dir, "disk.qcow2")).toBe(await inode(whole.dir, "disk.qcow2"));
  expect(await inode(dir, "mem")).not.toBe(await inode(whole.dir, "mem"));
  expect(existsSync(path.join(dir, "state"))).toBe(false);
  await verifyLoadable(deps, { dir, manifest });
  // A copy of it has no memory either.
  const again = await saveSnapshot(deps, newId(), { snapshot_id: copy });
  expect(again.manifest.memory).toBe(false);
  await verifyLoadable(deps, again);

  for (const over of [{}, { flushed: true, unfrozen: true }] as const) {
    const lacking = await publish(over);
    const refused = saveSnapshot(deps, newId(), { snapshot_id: lacking.id, memory: false });
    await expect(refused).rejects.toMatchObject({ code: "snapshot_unfrozen" });
  }
  expect((await readdir(snapshots.dirOf(""))).length).toBe(5);
});

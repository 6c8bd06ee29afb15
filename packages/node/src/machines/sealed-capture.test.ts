/** Captures of a sealed machine, with a process in QEMU's place that maps the memory and writes a device state. */
import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readdir, readFile, rm, stat, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { randomId } from "@vivarium/kit/id";
import { createLog } from "@vivarium/kit/log";
import { afterEach, beforeEach, expect, it, test } from "vitest";
import { makeLoadable, QEMU } from "../../test-support/loadable.ts";
import { DiskGate } from "../disks/gate.ts";
import { mappingsOf } from "../snapshots/changed-pages.ts";
import {
  filesOf,
  type Loadable,
  publishManifest,
  readManifest,
  SEALED_FILES,
  SNAPSHOT_FILES,
  verifyLoadable,
} from "../snapshots/manifest.ts";
import { readSealedBytes } from "../snapshots/sealed-bytes.ts";
import { StateKey } from "../snapshots/state-key.ts";
import { SumsThread } from "../snapshots/sums-thread.ts";
import { SnapshotTable } from "../snapshots/table.ts";
import { capture } from "./capture.ts";
import type { Machine } from "./machine.ts";
import { type SaveDeps, saveSnapshot } from "./save-snapshot.ts";

const CANARY = "canary-5f1d8a";
/** Maps a file privately, writes a text into its second page, and waits. */
const MAPPER = `
import mmap, sys
with open(sys.argv[1], "rb") as file:
    memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
memory[4096 : 4096 + len(sys.argv[2])] = sys.argv[2].encode()
print("mapped", end="", flush=True)
sys.stdin.read()
`;
const newKey = () => StateKey.parse(randomBytes(32).toString("base64url"));
const log = createLog("test", "silent");
const stateKey = newKey();

let dataDir: string;
let sums: SumsThread;
let snapshots: SnapshotTable;
let deps: SaveDeps;
const children: ChildProcess[] = [];
beforeEach(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), "sealed-"));
  sums = new SumsThread({ log });
  snapshots = new SnapshotTable({ dataDir, log });
  deps = { snapshots, sums, qemu: QEMU, log, gate: new DiskGate([dataDir], 0) } as SaveDeps;
});
afterEach(async () => {
  for (const child of children.splice(0)) child.kill("SIGKILL");
  await sums.close();
  await rm(dataDir, { recursive: true, force: true });
});

/** A process that maps the memory of this state, as QEMU does. */
async function startOn(parent: Loadable, written = "") {
  const child = spawn("python3", ["-c", MAPPER, path.join(parent.dir, "mem"), written], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  children.push(child);
  await once(child.stdout, "data");
  return child.pid as number;
}

async function makeMachine(pid: number, answers: { state?: () => Promise<void> } = {}) {
  const machineDir = path.join(dataDir, "machine");
  await mkdir(path.join(machineDir, "run"), { recursive: true });
  await writeFile(path.join(machineDir, "disk.qcow2"), "encrypted");
  const asked: string[] = [];
  const writeState =
    answers.state ?? (() => writeFile(path.join(machineDir, "run/state"), `state ${CANARY}`));
  const execute = async (command: string) => {
    asked.push(command);
    if (command === "xen-save-devices-state") await writeState();
  };
  const machine = {
    ...{ id: "machine", isRunning: true, spec: {}, slot: { uid: 0 }, process: { pid }, qmp: { execute } },
    agent: { freeze: async () => ({ flushed: true }), resumed: async () => ({ reseeded: true }) },
  };
  return { machine: machine as unknown as Machine, machineDir, asked };
}

async function makeBaseline(): Promise<Loadable> {
  const { dir, manifest } = await makeLoadable(path.join(dataDir, "baseline"));
  const baseline = { ...manifest, kind: "baseline" as const };
  await publishManifest(dir, baseline);
  return { dir, manifest: baseline };
}

async function save(parent: Loadable, key: StateKey | undefined, written = CANARY): Promise<Loadable> {
  const id = `pau_${randomId()}`;
  await mkdir(path.dirname(snapshots.dirOf(id)), { recursive: true });
  const { machine, machineDir } = await makeMachine(await startOn(parent, written));
  return await capture(deps, {
    ...{ machine, machineDir, parent, target: snapshots.dirOf(id), hold: true, announce: async () => {} },
    spec: { machine_id: `${randomId()}-1`, after: "hold" },
    stateKey: key,
  });
}

/** Names of a folder's files that contain the canary. */
async function filesWithCanary(dir: string): Promise<string[]> {
  const names = await readdir(dir);
  const contents = await Promise.all(names.map((name) => readFile(path.join(dir, name))));
  return names.filter((_, i) => contents[i]?.includes(CANARY)).toSorted();
}

it("has the guest's memory and device state in no file, which are readable without a key otherwise", async () => {
  const baseline = await makeBaseline();
  const sealed = await save(baseline, stateKey);
  expect(await filesWithCanary(sealed.dir)).toEqual([]);
  expect(existsSync(path.join(dataDir, "machine/run/state"))).toBe(false);
  const names = [...SNAPSHOT_FILES, ...SEALED_FILES, "manifest.json"];
  expect((await readdir(sealed.dir)).toSorted()).toEqual(names.toSorted());
  const inode = async (dir: string, name: string) => (await stat(path.join(dir, name))).ino;
  expect(await inode(sealed.dir, "mem")).toBe(await inode(baseline.dir, "mem"));
  expect(await inode(sealed.dir, "under.qcow2")).toBe(await inode(baseline.dir, "disk.qcow2"));
  expect(await readManifest(sealed.dir)).toMatchObject({
    sealed: { key_id: stateKey.id, label: path.basename(sealed.dir) },
  });
  expect(JSON.stringify(await readManifest(sealed.dir))).not.toContain(stateKey.diskPassphrase);
  await verifyLoadable(deps, sealed);

  expect(await filesWithCanary((await save(baseline, undefined)).dir)).toEqual(["mem", "state"]);
});

it("can be loaded, captured again and loaded again", async () => {
  const baseline = await makeBaseline();
  let parent = await save(baseline, stateKey);
  for (const _generation of [1, 2]) {
    const label = parent.manifest.sealed?.label ?? "";
    const state = path.join(parent.dir, "state");
    const content = readSealedBytes(state, { key: stateKey.derive("device state"), label });
    expect(content.toString()).toBe(`state ${CANARY}`);
    const pid = await startOn(parent);
    const mappings = mappingsOf(pid, await stat(path.join(parent.dir, "mem"), { bigint: true }));
    const memory = { file: path.join(parent.dir, "mem.sealed"), key: stateKey.derive("memory"), label };
    await sums.loadSealed(memory, pid, mappings);
    const { machine, machineDir } = await makeMachine(pid);
    const target = snapshots.dirOf(`pau_${randomId()}`);
    const spec = { machine_id: `${randomId()}-1`, after: "hold" as const };
    const more = { spec, hold: true, announce: async () => {}, stateKey };
    parent = await capture(deps, { machine, machineDir, parent, target, ...more });
    expect(await filesWithCanary(parent.dir)).toEqual([]);
    await verifyLoadable(deps, parent);
  }
});

it("is the difference to a template's own memory, which stays readable", async () => {
  const template = await makeLoadable(path.join(dataDir, "template"));
  await publishManifest(template.dir, template.manifest);
  const sealed = await save(template, stateKey);
  await verifyLoadable(deps, sealed);
  expect(await readFile(path.join(sealed.dir, "mem.sums"))).toEqual(
    await readFile(path.join(template.dir, "mem.sums")),
  );
});

it.each(["state", "mem.sealed", "mem.sums", "disk.qcow2", "under.qcow2"] as const)(
  "is refused with a damaged %s",
  async (name) => {
    const sealed = await save(await makeBaseline(), stateKey);
    const file = path.join(sealed.dir, name);
    const bytes = await readFile(file);
    const at = bytes.length >> 1;
    bytes.writeUInt8(bytes.readUInt8(at) ^ 1, at);
    await rm(file);
    await writeFile(file, bytes);
    await expect(verifyLoadable(deps, sealed)).rejects.toThrow(/damaged/);
    await truncate(file, 5);
    await expect(snapshots.check(path.basename(sealed.dir))).rejects.toMatchObject({
      code: "snapshot_damaged",
    });
  },
);

it("leaves nothing if QEMU does not write its state, and continues the guest", async () => {
  const baseline = await makeBaseline();
  const fail = { state: () => Promise.reject(new Error("QEMU refused")) };
  const { machine, machineDir, asked } = await makeMachine(await startOn(baseline, CANARY), fail);
  const target = snapshots.dirOf(`pau_${randomId()}`);
  await mkdir(path.dirname(target), { recursive: true });
  const spec = { machine_id: `${randomId()}-1`, after: "hold" as const };
  const input = { machine, machineDir, parent: baseline, target, spec, hold: true, stateKey };
  await expect(capture(deps, { ...input, announce: async () => {} })).rejects.toThrow("QEMU refused");
  expect(asked.at(-1)).toBe("cont");
  expect(existsSync(target)).toBe(false);
  expect(await readdir(path.join(machineDir, "run"))).toEqual([]);
});

it("is made by a second attempt after the first failed before its instant", async () => {
  const baseline = await makeBaseline();
  const { machine, machineDir } = await makeMachine(await startOn(baseline, CANARY));
  await mkdir(path.join(dataDir, "pool/s"), { recursive: true });
  const spec = { machine_id: `${randomId()}-1`, after: "hold" as const };
  const input = {
    machine,
    machineDir,
    parent: baseline,
    spec,
    hold: true,
    announce: async () => {},
    stateKey,
  };
  const announce = () => Promise.reject(new Error("no journal"));
  const attempt = (more: object = {}) =>
    capture(deps, { ...input, target: snapshots.dirOf(`pau_${randomId()}`), ...more });
  await expect(attempt({ announce })).rejects.toThrow("no journal");
  await verifyLoadable(deps, await attempt());
});

test("a copy needs the key, shares all files and opens with it", async () => {
  const sealed = await save(await makeBaseline(), stateKey);
  const spec = { snapshot_id: path.basename(sealed.dir) };
  const id = `chk_${randomId()}`;
  const refusal = { code: "wrong_state_key" };
  for (const wrong of [undefined, newKey()])
    await expect(saveSnapshot(deps, id, spec, wrong)).rejects.toMatchObject(refusal);
  const copy = await saveSnapshot(deps, id, spec, stateKey);
  for (const name of filesOf(copy.manifest))
    expect((await stat(path.join(copy.dir, name))).ino).toBe((await stat(path.join(sealed.dir, name))).ino);
  expect(copy.manifest.sealed).toEqual(sealed.manifest.sealed);
  expect(await snapshots.hasCopy(sealed)).toBe(true);
  await expect(saveSnapshot(deps, id, spec)).rejects.toMatchObject(refusal);
  // Another snapshot above the same baseline does not count.
  const { dir } = await save(
    { dir: path.join(dataDir, "baseline"), manifest: await readManifest(path.join(dataDir, "baseline")) },
    stateKey,
  );
  expect(await snapshots.hasCopy({ dir, manifest: await readManifest(dir) })).toBe(false);
});

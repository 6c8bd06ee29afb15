/** Bakes a baseline: cold boot → warm → freeze → stop → capture → publish. Never part of a request. */
import { chmod, chown, mkdir, rename, rm, truncate, writeFile } from "node:fs/promises";
import path from "node:path";
import { SIZES, type Size } from "@vivarium/contract/api/limits";
import { syncPath } from "@vivarium/kit/durable-file";
import { isAlive } from "@vivarium/kit/process-identity";
import { GIB, KIB, MIB } from "@vivarium/kit/sizes";
import { UndoStack } from "@vivarium/kit/undo-stack";
import { shareFile } from "../disks/clone.ts";
import { AgentClient } from "../guest/client.ts";
import { execInGuest } from "../guest/exec.ts";
import type { Cgroups } from "../host/cgroup.ts";
import { discardSlot } from "../host/discard-slot.ts";
import { readHostNetwork } from "../host/host-network.ts";
import { startQemu } from "../host/jail.ts";
import { killAtAbort } from "../host/kill-at-abort.ts";
import { createNamespace, removeNamespace } from "../host/netns.ts";
import { tscKhz } from "../host/processor.ts";
import type { QemuRoot } from "../host/qemu-root.ts";
import { run } from "../host/run.ts";
import { type Slot, takeSlot } from "../host/slots.ts";
import { kernelPolicyOf, networkWithoutEntries } from "../network/kernel-policy.ts";
import { rulesetOf } from "../network/ruleset.ts";
import {
  coldBootArguments,
  deviceArguments,
  deviceArgumentsHash,
  JAIL_PATHS,
  kernelArguments,
  type MachineShape,
} from "../qemu/arguments.ts";
import { type Accelerator, guestCpuOf, LACKS_MODEL, lackIn, whyNoModel } from "../qemu/cpu-model.ts";
import { describeHostCpu } from "../qemu/host-cpu.ts";
import type { Qmp } from "../qemu/qmp.ts";
import { kernelBinds } from "./kernel-binds.ts";
import { describeFiles, publishManifest, SNAPSHOT_FILES } from "./manifest.ts";
import { sumMemory } from "./page-sums.ts";
import { bootLimits, waitForAgent } from "./wait-for-agent.ts";

const SLOTS = 4096;
const MONITOR_LIMIT_MS = 30_000;
const WARM_LIMIT_MS = 120_000;
/** Bytes of output that are kept of a command in the guest. */
const OUTPUT_LIMIT_BYTES = 64 * KIB;

/** Commands that run before the capture, so that the files they read are in the page cache of every machine. */
const WARM_UP: string[][] = [
  ["true"],
  ["sh", "-c", "uname -r; id; ls /workspace"],
  ["python3", "-c", "import json, os, sys, re, subprocess, random, math; print(1)"],
  ["node", "-e", "console.log(1)"],
  ["bun", "-e", "console.log(1)"],
];

export interface BakeInput {
  qemu: QemuRoot;
  cgroups: Cgroups;
  progress: (line: string) => void;
  /** Owner of the slot during the bake. */
  owner: string;
  imagesDir: string;
  template: string;
  /** Folder of the template's version, with its disk; the baseline becomes a folder in it. Its name is the version. */
  folder: string;
  size: Size;
  /** An abort ends the bake. */
  signal?: AbortSignal | undefined;
  accelerators: Accelerator[];
  /** `VIV_CPU_MODEL`. */
  cpuModel: string;
}

interface Folders {
  /** Folder of the baseline until it is published. */
  dir: string;
  /** Folder of the template's version that it belongs to. */
  version: string;
}

/**
 * Tries each accelerator in turn. The first one under which the guest boots makes the baseline. A CPU model that the
 * first one does not have is no reason to try the next: a typing mistake would make every machine an emulated one.
 */
export async function bakeBaseline(input: BakeInput): Promise<void> {
  const failures: string[] = [];
  for (const accelerator of input.accelerators) {
    try {
      assertModel(input, accelerator);
      await bakeWith(input, accelerator);
      return;
    } catch (error) {
      input.signal?.throwIfAborted();
      const { message } = error as Error;
      if (error instanceof WrongModel) throw error;
      if (input.cpuModel !== "host" && LACKS_MODEL.test(message))
        throw new WrongModel(accelerator, input.cpuModel, lackIn(message));
      failures.push(`${accelerator}: ${message}`);
      input.progress(`${accelerator} does not work here: ${message}`);
    }
  }
  throw new Error(`no accelerator boots the guest; ${failures.join("; ")}`);
}

class WrongModel extends Error {
  constructor(accelerator: Accelerator, model: string, why: string) {
    super(
      `VIV_CPU_MODEL is ${model}, which ${accelerator} does not have on this host: ${why}. ` +
        "Set it to a model that this host provides, or to host, and set up again" +
        (accelerator === "kvm" ? "; or set VIV_ACCEL=tcg, for machines that are emulated" : ""),
    );
  }
}

function assertModel({ cpuModel }: BakeInput, accelerator: Accelerator): void {
  const why = whyNoModel(accelerator, cpuModel, describeHostCpu());
  if (why !== undefined) throw new WrongModel(accelerator, cpuModel, why);
}

async function bakeWith(input: BakeInput, accelerator: Accelerator): Promise<void> {
  const { template, size, folder: version } = input;
  const dir = path.join(version, `.${size}.tmp`);
  const shape: MachineShape = { accelerator, vcpus: SIZES[size].vcpus, memMb: SIZES[size].mem_mb };
  try {
    await makeFiles({ dir, version }, size);
    await bootAndCapture(input, shape, { dir, version });
    await publish(input, shape, { dir, version });
  } catch (error) {
    await rm(dir, { recursive: true, force: true });
    throw error;
  }
  input.progress(
    `baseline of ${template} in size ${size} (${accelerator}, CPU model ${guestCpuOf(accelerator, input.cpuModel).model}) is ready`,
  );
}

async function makeFiles({ dir, version }: Folders, size: Size): Promise<void> {
  const { mem_mb, disk_gb } = SIZES[size];
  await rm(dir, { recursive: true, force: true });
  await mkdir(path.join(dir, "run"), { recursive: true });
  await writeFile(path.join(dir, "mem"), "", { mode: 0o600 });
  await truncate(path.join(dir, "mem"), mem_mb * MIB);
  await writeFile(path.join(dir, "run/state"), "", { mode: 0o600 });
  const base = path.join(version, "root.ext4");
  const create = (...args: string[]) => run("qemu-img", ["create", "-q", "-f", "qcow2", ...args]);
  await create("-b", base, "-F", "raw", path.join(dir, "layer.qcow2"), `${disk_gb}G`);
  // No backing name in the header: the command line alone names an overlay's base.
  await create(path.join(dir, "disk.qcow2"), `${disk_gb}G`);
  await shareFile(base, path.join(dir, "base.raw"));
}

/** Leaves device state, memory and disk of a warm guest in `dir`, and nothing else on the host. */
async function bootAndCapture(input: BakeInput, shape: MachineShape, folders: Folders): Promise<void> {
  const undo = new UndoStack();
  try {
    const slot = await takeCleanSlot(input, undo);
    const { qmp, agent } = await boot(input, shape, { ...folders, slot }, undo);
    await checkClock(agent);
    for (const argv of WARM_UP) {
      input.progress(`warming: ${argv[0]}`);
      await runInGuest(agent, argv);
    }
    await capture(qmp, agent, folders.dir);
  } finally {
    await undo.unwind();
  }
}

async function takeCleanSlot({ cgroups, owner }: BakeInput, undo: UndoStack): Promise<Slot> {
  const slot = await takeSlot(owner, SLOTS);
  undo.push("slot", () => discardSlot(cgroups, slot));
  await removeNamespace(slot);
  // The guest reaches nothing while it is baked: it needs neither forwarding nor rules of the host's network.
  const host = await readHostNetwork();
  const policy = kernelPolicyOf(networkWithoutEntries("deny"));
  await createNamespace(slot, rulesetOf({ ...slot, never: host.never, closeSmtp: false }, policy, 1));
  return slot;
}

async function boot(
  input: BakeInput,
  shape: MachineShape,
  { dir, version, slot }: Folders & { slot: Slot },
  undo: UndoStack,
): Promise<{ qmp: Qmp; agent: AgentClient }> {
  const writable = ["mem", "layer.qcow2", "run", "run/state"].map((name) => path.join(dir, name));
  for (const file of writable) await chown(file, slot.uid, slot.uid);
  input.progress(`booting ${input.template} in size ${input.size} with ${shape.accelerator}`);
  const jail = {
    slot,
    dir,
    shape,
    qemuRoot: input.qemu.dir,
    fileBytes: 64 * GIB,
    binds: [
      { source: path.join(dir, "mem"), target: JAIL_PATHS.memory, writable: true },
      { source: path.join(version, "root.ext4"), target: JAIL_PATHS.base, writable: false },
      { source: path.join(dir, "layer.qcow2"), target: JAIL_PATHS.disk, writable: true },
      ...kernelBinds(input.imagesDir),
      { source: path.join(dir, "run"), target: JAIL_PATHS.run, writable: true },
    ],
    arguments: coldBootArguments(shape, {
      kernelArguments: kernelArguments(shape.accelerator, tscKhz()),
      devices: deviceArguments(shape, input.cpuModel),
    }),
  };
  input.signal?.throwIfAborted();
  const qemu = await startQemu(input.cgroups, jail, undo, MONITOR_LIMIT_MS);
  if (input.signal) killAtAbort(qemu, undo, input.signal);
  const agent = new AgentClient(path.join(dir, "run/agent.sock"));
  undo.push("agent", () => agent.close());
  const alive = () => isAlive(qemu.process);
  await waitForAgent({ agent, qmp: qemu.qmp, alive }, bootLimits(shape));
  return { qmp: qemu.qmp, agent };
}

/** Refuses a guest whose kernel fell back to a clock of timer ticks, which every machine would then have. */
async function checkClock(agent: AgentClient): Promise<void> {
  const { clock_source: source = "" } = await agent.health();
  if (source !== "tsc" && source !== "kvm-clock")
    throw new Error(`the guest's clock is none that every copy could use: ${JSON.stringify(source)}`);
}

/** A program that the image lacks is passed over: it ends with 127, like in a shell. */
async function runInGuest(agent: AgentClient, argv: string[]): Promise<void> {
  const spec = { argv, env: {}, timeout_ms: WARM_LIMIT_MS, output_limit_bytes: OUTPUT_LIMIT_BYTES };
  for await (const _ of await execInGuest(agent, spec));
}

async function capture(qmp: Qmp, agent: AgentClient, dir: string): Promise<void> {
  await agent.freeze();
  await qmp.execute("stop");
  await qmp.execute("xen-save-devices-state", { filename: `${JAIL_PATHS.run}/state` });
  await qmp.execute("quit").catch(() => {});
  await qmp.closed;
  await rename(path.join(dir, "run/state"), path.join(dir, "state"));
}

async function publish(
  { template, size, qemu, cpuModel }: BakeInput,
  shape: MachineShape,
  { dir, version }: Folders,
): Promise<void> {
  for (const name of ["run", "tun", "kvm"]) await rm(path.join(dir, name), { recursive: true, force: true });
  const { vcpus, mem_mb, disk_gb } = SIZES[size];
  const devices = deviceArguments(shape, cpuModel);
  const cpu = guestCpuOf(shape.accelerator, cpuModel);
  const sums = await sumMemory(path.join(dir, "mem"), mem_mb * MIB);
  await writeFile(path.join(dir, "mem.sums"), sums.toBytes());
  for (const name of SNAPSHOT_FILES.filter((each) => each !== "base.raw")) {
    await chown(path.join(dir, name), 0, 0);
    await chmod(path.join(dir, name), 0o444);
    await syncPath(path.join(dir, name));
  }
  await publishManifest(dir, {
    format: 2,
    kind: "baseline",
    template,
    version: path.basename(version),
    size,
    accelerator: shape.accelerator,
    vcpus,
    mem_mb,
    disk_gb,
    qemu_build: qemu.buildId,
    cpu,
    devices,
    device_arguments: deviceArgumentsHash({ ...shape, cpu }, devices),
    created_at: new Date().toISOString(),
    own_bytes: 0,
    files: await describeFiles(dir),
  });
  const target = path.join(version, size);
  await rm(target, { recursive: true, force: true });
  await rename(dir, target);
  await syncPath(path.dirname(target));
}

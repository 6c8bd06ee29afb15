/** Cold boot → warm → freeze → stop → capture → publish. Never part of a request. */
import { chmod, chown, mkdir, open, realpath, rename, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { SIZES, type Size } from "@vivarium/contract/api/limits";
import { syncPath } from "@vivarium/kit/durable-file";
import type { Log } from "@vivarium/kit/log";
import { isAlive, killAndWait } from "@vivarium/kit/process-identity";
import { GIB, MIB } from "@vivarium/kit/sizes";
import { UndoStack } from "@vivarium/kit/undo-stack";
import { shareFile } from "../disks/clone.ts";
import { AgentClient, assertGeneration } from "../guest/client.ts";
import { execInGuest } from "../guest/exec.ts";
import { removeCgroup } from "../host/cgroup.ts";
import { makeDevices } from "../host/devices.ts";
import { prepareHostNetwork, readHostNetwork } from "../host/host-network.ts";
import { type JailedProcess, startJailed } from "../host/jail.ts";
import { createNamespace, removeNamespace } from "../host/netns.ts";
import type { QemuRoot } from "../host/qemu-root.ts";
import { run } from "../host/run.ts";
import { freeSlot, type Slot, slotsOf, takeSlot } from "../host/slots.ts";
import { tscKhz } from "../host/tsc.ts";
import { kernelPolicyOf } from "../network/kernel-policy.ts";
import { rulesetOf } from "../network/ruleset.ts";
import {
  type Accelerator,
  coldBootArguments,
  deviceArguments,
  deviceArgumentsHash,
  JAIL_PATHS,
  kernelArguments,
  type MachineShape,
} from "../qemu/arguments.ts";
import { Qmp } from "../qemu/qmp.ts";
import { describeFiles, publishManifest, SNAPSHOT_FILES } from "./manifest.ts";
import { sumMemory } from "./page-sums.ts";

const SLOTS = 4096;
/** A cold boot takes 10-20 s under emulation. A virtual CPU that does not run at all shows much earlier. */
const BOOT_LIMIT_MS = { kvm: 20_000, tcg: 300_000 };
const WARM_LIMIT_MS = 120_000;

/** Started once before the capture, so that the files they read are in the page cache of every clone. */
const WARM_UP: string[][] = [
  ["true"],
  ["sh", "-c", "uname -r; id; ls /workspace"],
  ["python3", "-c", "import json, os, sys, re, subprocess, random, math; print(1)"],
  ["node", "-e", "console.log(1)"],
  ["bun", "-e", "console.log(1)"],
];

export interface BakeInput {
  qemu: QemuRoot;
  log: Log;
  progress: (line: string) => void;
  /** Owner of the slot during the bake. A slot left by an earlier bake under this name is freed first. */
  owner: string;
  imagesDir: string;
  template: string;
  version: string;
  size: Size;
  accelerators: Accelerator[];
}

/** Tries each accelerator in turn. The first one under which the guest boots makes the baseline. */
export async function bakeBaseline(input: BakeInput): Promise<void> {
  const failures: string[] = [];
  for (const accelerator of input.accelerators) {
    try {
      await bakeWith(input, accelerator);
      return;
    } catch (error) {
      failures.push(`${accelerator}: ${(error as Error).message}`);
      input.progress(`${accelerator} does not work here: ${(error as Error).message}`);
    }
  }
  throw new Error(`no accelerator boots the guest; ${failures.join("; ")}`);
}

async function bakeWith(input: BakeInput, accelerator: Accelerator): Promise<void> {
  const { template, size, imagesDir } = input;
  const version = await realpath(path.join(imagesDir, "templates", template, input.version));
  const tier = SIZES[size];
  const shape: MachineShape = { accelerator, vcpus: tier.vcpus, memMb: tier.mem_mb };
  const target = path.join(version, size);
  const dir = path.join(version, `.${size}.tmp`);
  const undo = new UndoStack();
  try {
    await makeFiles(dir, tier, version);
    undo.push("files", () => rm(dir, { recursive: true, force: true }));
    const slot = await takeCleanSlot(input.owner, undo);
    const vm = await boot(input, shape, { dir, version, slot }, undo);
    await checkClock(vm.agent);
    await warmUp(vm.agent, input.progress);
    await capture(vm, dir);
    undo.release();
    await releaseAll(vm, slot);
    await finish(dir, target, { template, size, version: path.basename(version), shape, qemu: input.qemu });
    input.progress(`baseline of ${template} in size ${size} (${accelerator}) is ready`);
  } catch (error) {
    await undo.unwind();
    throw error;
  }
}

async function makeFiles(
  dir: string,
  tier: { mem_mb: number; disk_gb: number },
  version: string,
): Promise<void> {
  await rm(dir, { recursive: true, force: true });
  await mkdir(path.join(dir, "run"), { recursive: true });
  const memory = await open(path.join(dir, "mem"), "w", 0o600);
  await memory.truncate(tier.mem_mb * MIB);
  await memory.close();
  const state = await open(path.join(dir, "run/state"), "w", 0o600);
  await state.close();
  const blank = ["create", "-q", "-f", "qcow2"];
  const bytes = `${tier.disk_gb}G`;
  await run("qemu-img", [
    ...blank,
    "-b",
    path.join(version, "root.ext4"),
    "-F",
    "raw",
    path.join(dir, "layer.qcow2"),
    bytes,
  ]);
  // No backing name in the header: the command line alone names an overlay's base.
  await run("qemu-img", [...blank, path.join(dir, "disk.qcow2"), bytes]);
  await shareFile(path.join(version, "root.ext4"), path.join(dir, "base.raw"));
}

/** The guest reaches nothing while it is baked. */
const NOTHING = kernelPolicyOf({ generation: 1, egress: { mode: "deny", allow: [] }, exposed: [] });

async function takeCleanSlot(owner: string, undo: UndoStack): Promise<Slot> {
  const host = await readHostNetwork();
  await prepareHostNetwork(host, undefined);
  for (const stale of await slotsOf(owner)) {
    await removeNamespace(stale);
    await freeSlot(stale);
  }
  const slot = await takeSlot(owner, SLOTS);
  undo.push("slot", () => freeSlot(slot));
  await removeNamespace(slot);
  undo.push("namespace", () => removeNamespace(slot));
  await createNamespace(slot, rulesetOf({ ...slot, never: host.never, closeSmtp: false }, NOTHING, 1));
  return slot;
}

interface BakedMachine {
  jailed: JailedProcess;
  qmp: Qmp;
  agent: AgentClient;
}

async function boot(
  input: BakeInput,
  shape: MachineShape,
  paths: { dir: string; version: string; slot: Slot },
  undo: UndoStack,
): Promise<BakedMachine> {
  const { dir, slot, version } = paths;
  const writable = ["mem", "layer.qcow2", "run", "run/state"].map((name) => path.join(dir, name));
  for (const file of writable) await chown(file, slot.uid, slot.uid);
  input.progress(`booting ${input.template} in size ${input.size} with ${shape.accelerator}`);
  const kernel = path.join(input.imagesDir, "kernel");
  const jailed = await startJailed({
    slot,
    qemuRoot: input.qemu.dir,
    devices: await makeDevices(dir, slot, shape.accelerator === "kvm" ? ["tun", "kvm"] : ["tun"]),
    fileBytes: 64 * GIB,
    memoryBytes: shape.memMb * MIB,
    vcpus: shape.vcpus,
    binds: [
      { source: path.join(dir, "mem"), target: JAIL_PATHS.memory, writable: true },
      { source: path.join(version, "root.ext4"), target: JAIL_PATHS.base, writable: false },
      { source: path.join(dir, "layer.qcow2"), target: JAIL_PATHS.disk, writable: true },
      { source: path.join(kernel, "vmlinuz"), target: JAIL_PATHS.kernel, writable: false },
      { source: path.join(kernel, "initramfs.cpio.gz"), target: JAIL_PATHS.initramfs, writable: false },
      { source: path.join(dir, "run"), target: JAIL_PATHS.run, writable: true },
    ],
    arguments: coldBootArguments(shape, { kernelArguments: kernelArguments(shape.accelerator, tscKhz()) }),
  });
  undo.push("cgroup", () => removeCgroup(slot));
  undo.push("process", () => killAndWait(jailed.identity));
  const qmp = await Qmp.connect(path.join(dir, "run/qmp.sock"), {
    limitMs: 30_000,
    alive: () => isAlive(jailed.identity),
  }).catch((cause) => {
    throw new Error(`QEMU did not start: ${jailed.lastWords()}`, { cause });
  });
  undo.push("monitor", () => qmp.close());
  const agent = new AgentClient(path.join(dir, "run/agent.sock"));
  undo.push("agent", () => agent.close());
  await waitForAgent(agent, qmp, BOOT_LIMIT_MS[shape.accelerator], jailed);
  return { jailed, qmp, agent };
}

async function waitForAgent(
  agent: AgentClient,
  qmp: Qmp,
  limitMs: number,
  jailed: JailedProcess,
): Promise<void> {
  const deadline = Date.now() + limitMs;
  for (;;) {
    try {
      assertGeneration(await agent.health());
      return;
    } catch (error) {
      if (Date.now() < deadline && isAlive(jailed.identity)) continue;
      const console = await qmp.execute("ringbuf-read", { device: "console", size: 4096 }).catch(() => "");
      const last = String(console).trim().split("\n").slice(-8).join(" | ");
      throw new Error(`the guest did not come up within ${limitMs / 1000} s (console: ${last || "silent"})`, {
        cause: error,
      });
    }
  }
}

/** A guest that fell back to counting timer ticks would keep that clock in every copy. */
async function checkClock(agent: AgentClient): Promise<void> {
  const argv = ["cat", "/sys/devices/system/clocksource/clocksource0/current_clocksource"];
  const frames = await execInGuest(agent, { argv, env: {}, timeout_ms: WARM_LIMIT_MS });
  const chunks: Buffer[] = [];
  for await (const chunk of frames) chunks.push(chunk as Buffer);
  const output = Buffer.concat(chunks).toString("latin1");
  if (!/(tsc|kvm-clock)\n/.test(output))
    throw new Error(
      `the guest's clock is none that every copy could use: ${JSON.stringify(output.slice(0, 80))}`,
    );
}

async function warmUp(agent: AgentClient, progress: (line: string) => void): Promise<void> {
  for (const argv of WARM_UP) {
    progress(`warming: ${argv[0]}`);
    const frames = await execInGuest(agent, { argv, env: {}, timeout_ms: WARM_LIMIT_MS });
    for await (const _ of frames) {
      // Only the side effect on the guest's page cache matters.
    }
  }
}

async function capture(vm: BakedMachine, dir: string): Promise<void> {
  await vm.agent.command("/v1/freeze");
  await vm.qmp.execute("stop");
  await vm.qmp.execute("xen-save-devices-state", { filename: `${JAIL_PATHS.run}/state` });
  await vm.qmp.execute("quit").catch(() => {});
  await vm.qmp.closed;
  await rename(path.join(dir, "run/state"), path.join(dir, "state"));
}

async function releaseAll(vm: BakedMachine, slot: Slot): Promise<void> {
  vm.agent.close();
  await killAndWait(vm.jailed.identity);
  await removeCgroup(slot);
  await removeNamespace(slot);
  await freeSlot(slot);
}

async function finish(
  dir: string,
  target: string,
  made: { template: string; size: Size; version: string; shape: MachineShape; qemu: QemuRoot },
): Promise<void> {
  for (const name of ["run", "tun", "kvm"]) await rm(path.join(dir, name), { recursive: true, force: true });
  const tier = SIZES[made.size];
  const devices = deviceArguments(made.shape);
  const sums = await sumMemory(path.join(dir, "mem"), tier.mem_mb * MIB);
  await writeFile(path.join(dir, "mem.sums"), sums.toBytes());
  for (const name of SNAPSHOT_FILES.filter((each) => each !== "base.raw")) {
    await chown(path.join(dir, name), 0, 0);
    await chmod(path.join(dir, name), 0o444);
    await syncPath(path.join(dir, name));
  }
  await publishManifest(dir, {
    format: 2,
    kind: "baseline",
    template: made.template,
    version: made.version,
    size: made.size,
    accelerator: made.shape.accelerator,
    vcpus: tier.vcpus,
    mem_mb: tier.mem_mb,
    disk_gb: tier.disk_gb,
    qemu_build: made.qemu.buildId,
    devices,
    device_arguments: deviceArgumentsHash(made.shape, devices),
    created_at: new Date().toISOString(),
    own_bytes: 0,
    files: await describeFiles(dir),
  });
  await rm(target, { recursive: true, force: true });
  await rename(dir, target);
  await syncPath(path.dirname(target));
}

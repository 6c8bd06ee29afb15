/** Starts a builder: a machine in the jail of any other, with two disks and no network, which unpacks one image and ends. */
import { chown, mkdir } from "node:fs/promises";
import path from "node:path";
import { endsWithin } from "@vivarium/kit/clock";
import { isAlive } from "@vivarium/kit/process-identity";
import { UndoStack } from "@vivarium/kit/undo-stack";
import { AgentClient } from "../guest/client.ts";
import type { Cgroups } from "../host/cgroup.ts";
import { discardSlot } from "../host/discard-slot.ts";
import { type Qemu, startQemu } from "../host/jail.ts";
import { killAtAbort } from "../host/kill-at-abort.ts";
import { createEmptyNamespace, removeNamespace } from "../host/netns.ts";
import { tscKhz } from "../host/processor.ts";
import type { QemuRoot } from "../host/qemu-root.ts";
import { type Slot, takeSlot } from "../host/slots.ts";
import { JAIL_PATHS, kernelArguments, type MachineShape } from "../qemu/arguments.ts";
import { builderArguments } from "../qemu/builder-arguments.ts";
import { type Accelerator, cpuArgument } from "../qemu/cpu-model.ts";
import { builderKernelBinds } from "../snapshots/kernel-binds.ts";
import { bootLimits, waitForAgent } from "../snapshots/wait-for-agent.ts";
import { TARGET_BYTES } from "./target-disk.ts";

/**
 * More than the agent, its limits and the file system's caches need. With exactly 2,048 MiB QEMU's microvm hung at boot ("ACPI:
 * Core revision") once the initramfs was larger, and 2,304 boot; why is not proved. Issue 171 of microvm.nix reports hangs at
 * 2,048 MiB as well.
 */
export const BUILDER_MB = 2304;
const VCPUS = 2;
const MONITOR_LIMIT_MS = 30_000;
const END_LIMIT_MS = 60_000;

export interface BuilderDeps {
  qemu: QemuRoot;
  cgroups: Cgroups;
  imagesDir: string;
  /** Owner of the builder's slot, which is emptied at the daemon's start like that of a machine which no journal knows. */
  owner: string;
  /** Most slots of this host. */
  slots: number;
  accelerators: readonly Accelerator[];
  cpuModel: string;
}

export interface Builder {
  agent: AgentClient;
  /** Waits for the end that follows the agent's last answer. */
  end(): Promise<void>;
}

export interface BuilderFiles {
  /** A folder of the builder alone. */
  dir: string;
  target: string;
  layers: string;
}

/** Starts a builder with the first accelerator under which it boots. An abort kills it. */
export async function startBuilder(
  deps: BuilderDeps,
  files: BuilderFiles,
  undo: UndoStack,
  signal: AbortSignal,
): Promise<Builder> {
  const slot = await takeSlot(deps.owner, deps.slots);
  undo.push("slot", () => discardSlot(deps.cgroups, slot));
  await removeNamespace(slot);
  await createEmptyNamespace(slot);
  for (const file of [files.target, files.layers]) await chown(file, slot.uid, slot.uid);
  await mkdir(path.join(files.dir, "run"), { mode: 0o700 });
  await chown(path.join(files.dir, "run"), slot.uid, slot.uid);
  const failures: string[] = [];
  for (const accelerator of deps.accelerators) {
    signal.throwIfAborted();
    const attempt = new UndoStack();
    try {
      const builder = await boot(deps, files, { slot, accelerator }, attempt, signal);
      undo.push("builder", () => attempt.unwind());
      return builder;
    } catch (error) {
      await attempt.unwind();
      failures.push(`${accelerator}: ${(error as Error).message}`);
    }
  }
  throw new Error(`no accelerator boots the builder; ${failures.join("; ")}`);
}

async function boot(
  deps: BuilderDeps,
  { dir, target, layers }: BuilderFiles,
  { slot, accelerator }: { slot: Slot; accelerator: Accelerator },
  undo: UndoStack,
  signal: AbortSignal,
): Promise<Builder> {
  const shape: MachineShape = { accelerator, vcpus: VCPUS, memMb: BUILDER_MB };
  const qemu = await startQemu(
    deps.cgroups,
    {
      slot,
      dir,
      shape,
      qemuRoot: deps.qemu.dir,
      fileBytes: TARGET_BYTES,
      isOffline: true,
      binds: [
        { source: target, target: JAIL_PATHS.target, writable: true },
        { source: layers, target: JAIL_PATHS.layers, writable: false },
        ...builderKernelBinds(deps.imagesDir),
        { source: path.join(dir, "run"), target: JAIL_PATHS.run, writable: true },
      ],
      arguments: builderArguments(shape, {
        kernelArguments: kernelArguments(accelerator, tscKhz()),
        cpu: cpuArgument(accelerator, deps.cpuModel),
      }),
    },
    undo,
    MONITOR_LIMIT_MS,
  );
  killAtAbort(qemu, undo, signal);
  const agent = new AgentClient(path.join(dir, "run/agent.sock"));
  undo.push("agent", () => agent.close());
  await waitForAgent({ agent, qmp: qemu.qmp, alive: () => isAlive(qemu.process) }, bootLimits(shape));
  return { agent, end: () => endOf(qemu, agent) };
}

/** The builder ends once this side has hung up. */
async function endOf({ qmp }: Qemu, agent: AgentClient): Promise<void> {
  agent.close();
  if (!(await endsWithin(END_LIMIT_MS, qmp.closed)))
    throw new Error(`the builder did not end within ${END_LIMIT_MS} ms`);
}

/** Puts each machine into a cgroup v2 leaf with limits, if the host has a v2 hierarchy with controllers. */
import { existsSync, readFileSync } from "node:fs";
import { mkdir, rmdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { MIB } from "@vivarium/kit/sizes";
import type { MachineShape } from "../qemu/arguments.ts";
import type { Slot } from "./slots.ts";

const ROOT = "/sys/fs/cgroup";
const SLICE = path.join(ROOT, "vivarium");
const CONTROLLERS = ["cpu", "memory", "pids"];
/** Memory for QEMU itself, besides the guest's. */
const QEMU_OVERHEAD_BYTES = 256 * MIB;
/** Most threads and processes of a machine. */
const MAX_TASKS = 64;
/** Period of the CPU limit (`cpu.max`). */
const PERIOD_US = 100_000;

export function hasCgroupV2(): boolean {
  const file = path.join(ROOT, "cgroup.controllers");
  if (!existsSync(file)) return false;
  const present = readFileSync(file, "utf8").trim().split(" ");
  return CONTROLLERS.every((controller) => present.includes(controller));
}

export async function prepareCgroups(): Promise<void> {
  if (!hasCgroupV2()) return;
  const enable = CONTROLLERS.map((controller) => `+${controller}`).join(" ");
  await mkdir(SLICE, { recursive: true });
  await writeFile(path.join(ROOT, "cgroup.subtree_control"), enable);
  await writeFile(path.join(SLICE, "cgroup.subtree_control"), enable);
}

export async function joinCgroup(slot: Slot, { memMb, vcpus }: MachineShape, pid: number): Promise<void> {
  if (!hasCgroupV2()) return;
  const leaf = leafOf(slot);
  await mkdir(leaf, { recursive: true });
  await writeFile(path.join(leaf, "memory.max"), String(memMb * MIB + QEMU_OVERHEAD_BYTES));
  await writeFile(path.join(leaf, "memory.swap.max"), "0").catch(() => {});
  await writeFile(path.join(leaf, "memory.oom.group"), "1");
  await writeFile(path.join(leaf, "pids.max"), String(MAX_TASKS));
  await writeFile(path.join(leaf, "cpu.max"), `${vcpus * PERIOD_US} ${PERIOD_US}`);
  await writeFile(path.join(leaf, "cgroup.procs"), String(pid));
}

export async function removeCgroup(slot: Slot): Promise<void> {
  if (!existsSync(leafOf(slot))) return;
  await writeFile(path.join(leafOf(slot), "cgroup.kill"), "1").catch(() => {});
  await rmdir(leafOf(slot));
}

const leafOf = (slot: Slot) => path.join(SLICE, `slot-${slot.number}`);

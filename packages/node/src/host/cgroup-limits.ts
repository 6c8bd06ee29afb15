/** Limits of a machine's cgroup, by its shape. */
import { GIB, MIB } from "@vivarium/kit/sizes";
import type { MachineShape } from "../qemu/arguments.ts";

/** Controllers of which a machine needs the limits. */
export const NEEDED = ["cpu", "memory", "pids"];
/** Controllers that are used where the host has them. */
export const USED = [...NEEDED, "io"];

/**
 * Threads that serve a machine's disk: QEMU makes at most 64 per event loop (its `thread-pool-max`), and a machine has
 * one event loop. A guest gets all of them with 64 reads or writes in flight. QEMU aborts when it cannot make a
 * thread, so this limit must leave space for each of them.
 */
const POOL_THREADS = 64;
/**
 * Tasks of a machine besides pool and vCPUs. There are four: QEMU's main thread, its RCU thread, the kernel's helper
 * for huge pages under KVM, and bubblewrap, which waits outside. The rest is headroom for other versions.
 */
const OTHER_TASKS = 16;

/**
 * Memory besides the guest's. QEMU's own heap and stacks, the tables that map the guest's memory (both the process's and
 * KVM's, some 4 MiB per GiB) and the kernel's buffers are below 128 MiB. The rest is page cache.
 *
 * Page cache of the machine's files is charged too: its disk, and those snapshot files that it was the first to read.
 * None of it ends the machine. What is clean is dropped at the limit. What is dirty has to be written first, so the
 * machine is slowed from `memory.high` on, well below the limit, and the kernel starts to write.
 */
const OVERHEAD_BYTES = 256 * MIB;
const CACHE_SLOWED_BYTES = 64 * MIB;
/** Most memory that QEMU's emulation keeps translated code in: this, or an eighth of the host's memory. */
const TRANSLATED_BYTES = GIB;
/** Period of the CPU limit (`cpu.max`). */
const PERIOD_US = 100_000;
/** The kernel's default weight, and the highest one. */
const WEIGHT = 100;
const MAX_WEIGHT = 10_000;

export interface Limit {
  file: string;
  value: string;
  /** Whether the file may be missing: kernels without swap accounting or without a policy for disks lack some. */
  isOptional?: boolean;
}

/** The limits that these controllers can set. */
export function limitsOf(
  { accelerator, vcpus, memMb }: MachineShape,
  { controllers, hostBytes }: { controllers: readonly string[]; hostBytes: number },
): Limit[] {
  const translated = accelerator === "tcg" ? Math.min(TRANSLATED_BYTES, hostBytes / 8) : 0;
  const bytes = memMb * MIB + OVERHEAD_BYTES + Math.floor(translated);
  const weight = String(Math.min(WEIGHT * vcpus, MAX_WEIGHT));
  const all: Limit[] = [
    { file: "cpu.max", value: `${vcpus * PERIOD_US} ${PERIOD_US}` },
    { file: "cpu.weight", value: weight },
    { file: "memory.high", value: String(bytes - CACHE_SLOWED_BYTES) },
    { file: "memory.max", value: String(bytes) },
    { file: "memory.oom.group", value: "1" },
    { file: "memory.swap.max", value: "0", isOptional: true },
    { file: "pids.max", value: String(POOL_THREADS + vcpus + OTHER_TASKS) },
    { file: "io.weight", value: weight, isOptional: true },
  ];
  return all.filter(({ file }) => controllers.includes(file.split(".")[0] as string));
}

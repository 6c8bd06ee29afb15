/**
 * Reads and writes the node's journal, which has one file per machine. An entry is synced before the first side
 * effect of a start. It is withdrawn once nothing but the number of its slot is left, before the slot is freed.
 * Anything on this host without an entry is an orphan.
 */
import { existsSync } from "node:fs";
import { mkdir, readdir, readFile, rm } from "node:fs/promises";
import path from "node:path";
import { MachineId, MachineStatus, SnapshotId, StartSpec, StartTimings } from "@vivarium/contract/node";
import { syncPath, writeDurably } from "@vivarium/kit/durable-file";
import { z } from "zod";
import type { NodeConfig } from "../config.ts";
import type { Machine } from "./machine.ts";

export const JournalEntry = z.object({
  machine_id: MachineId,
  spec: StartSpec,
  state: z.enum(["starting", "running", "held"]),
  slot: z.int(),
  process: z.object({ pid: z.int(), startTicks: z.string(), bootId: z.string().optional() }).optional(),
  /** Id of the state key that the machine is sealed with. The key itself is kept nowhere on the node. */
  state_key_id: z.string().optional(),
  /** How the machine runs. */
  isolation: MachineStatus.shape.isolation,
  timings: StartTimings.optional(),
  /** Snapshot of a capture in progress: if it is complete after a crash, the machine stays stopped. */
  holding_for: SnapshotId.optional(),
});
export type JournalEntry = z.infer<typeof JournalEntry>;

const FILE = "machine.json";

export const machinesDir = (dataDir: string) => path.join(dataDir, "pool/m");
export const machineDir = (dataDir: string, machineId: string) => path.join(machinesDir(dataDir), machineId);
/** Folder with links to the snapshot that the machine was loaded from, so that its files live as long as the machine. */
export const parentDir = (dataDir: string, machineId: string) =>
  path.join(machineDir(dataDir, machineId), "parent");

export async function writeEntry(dataDir: string, entry: JournalEntry): Promise<void> {
  const dir = machineDir(dataDir, entry.machine_id);
  await mkdir(dir, { recursive: true, mode: 0o711 });
  await writeDurably(path.join(dir, FILE), JSON.stringify(entry), 0o600);
}

export const markHeld = (config: NodeConfig, machine: Machine) =>
  updateEntry(config, machine, { state: "held", holding_for: undefined });

export const markRunning = (config: NodeConfig, machine: Machine) =>
  updateEntry(config, machine, { state: "running", holding_for: undefined });

export async function updateEntry(
  { dataDir }: NodeConfig,
  machine: Machine,
  change: Partial<JournalEntry>,
): Promise<void> {
  const entry = { ...machine.entry, ...change };
  await writeEntry(dataDir, entry);
  machine.entry = entry;
}

/** Removes the entry from the machine's folder, which names no slot any more and is an orphan from then on. */
export async function withdrawEntry(dataDir: string, machineId: string): Promise<void> {
  const dir = machineDir(dataDir, machineId);
  if (!existsSync(dir)) return;
  await rm(path.join(dir, FILE), { force: true });
  await syncPath(dir);
}

/** Removes the machine's files and keeps its entry. */
export async function removeFiles(dataDir: string, machineId: string): Promise<void> {
  const dir = machineDir(dataDir, machineId);
  const names = existsSync(dir) ? await readdir(dir) : [];
  const others = names.filter((name) => name !== FILE);
  await Promise.all(others.map((name) => rm(path.join(dir, name), { recursive: true, force: true })));
}

export async function removeEntry(dataDir: string, machineId: string): Promise<void> {
  await rm(machineDir(dataDir, machineId), { recursive: true, force: true });
}

/** Every folder below the machines' directory; `entry` is null when its journal file is missing or unreadable. */
export async function readJournal(
  dataDir: string,
): Promise<{ machineId: string; entry: JournalEntry | null }[]> {
  const names = await readdir(machinesDir(dataDir)).catch(() => []);
  return Promise.all(
    names.map(async (machineId) => ({ machineId, entry: await readEntry(dataDir, machineId) })),
  );
}

export async function readEntry(dataDir: string, machineId: string): Promise<JournalEntry | null> {
  const file = path.join(machineDir(dataDir, machineId), FILE);
  try {
    return JournalEntry.parse(JSON.parse(await readFile(file, "utf8")));
  } catch {
    return null;
  }
}

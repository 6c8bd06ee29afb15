/**
 * The node's journal: one file per machine. It is written and synced before the first side effect of a start, and
 * withdrawn by a stop before the slot is freed. Anything on this host without a journal entry is an orphan.
 */
import { mkdir, readdir, readFile, rm } from "node:fs/promises";
import path from "node:path";
import { MachineId, SnapshotId, StartSpec, StartTimings } from "@vivarium/contract/node";
import { syncPath, writeDurably } from "@vivarium/kit/durable-file";
import { z } from "zod";

export const JournalEntry = z.object({
  machine_id: MachineId,
  spec: StartSpec,
  state: z.enum(["starting", "running", "held"]),
  slot: z.int(),
  process: z.object({ pid: z.int(), startTicks: z.string(), bootId: z.string().optional() }).optional(),
  timings: StartTimings.optional(),
  /** The capture in progress after which the machine stays stopped, provided that its snapshot is complete. */
  holding_for: SnapshotId.optional(),
});
export type JournalEntry = z.infer<typeof JournalEntry>;

const FILE = "machine.json";

export const machinesDir = (dataDir: string) => path.join(dataDir, "pool/m");
export const machineDir = (dataDir: string, machineId: string) => path.join(machinesDir(dataDir), machineId);
/** The snapshot that the machine was loaded from, linked, so that its files live as long as the machine. */
export const parentDir = (dataDir: string, machineId: string) =>
  path.join(machineDir(dataDir, machineId), "parent");

export async function writeEntry(dataDir: string, entry: JournalEntry): Promise<void> {
  const dir = machineDir(dataDir, entry.machine_id);
  await mkdir(dir, { recursive: true, mode: 0o711 });
  await writeDurably(path.join(dir, FILE), JSON.stringify(entry), 0o600);
}

/** From here on the folder is an orphan, and names no slot that another machine may get next. */
export async function withdrawEntry(dataDir: string, machineId: string): Promise<void> {
  const dir = machineDir(dataDir, machineId);
  await rm(path.join(dir, FILE), { force: true });
  await syncPath(dir);
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

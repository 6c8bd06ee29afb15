/** Counts what the machines of one service leave on the host: processes, user ids, mounts, namespaces, groups, files. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { hostProcesses, namespaceOf, readProcess } from "./host-processes.ts";

const SLOTS_DIR = "/run/vivarium/slots";
const FIRST_UID = 700_000;
const CGROUPS = "/sys/fs/cgroup";
const GROUP_PARENTS = [`${CGROUPS}/vivarium`, `${CGROUPS}/system.slice/vivarium-machines.service`];
/** Number of namespaces, each with its slot, that a node prepares for future machines. */
export const AHEAD = 5;
const NAMESPACES = ["mnt", "pid", "net", "ipc", "uts"];

export interface MachineTraces {
  processes: number;
  uids: number;
  mounts: number;
  namespaces: number;
  slots: number;
  netns: number;
  links: number;
  groups: number;
  folders: string[];
}

export function machineTraces(dataDir: string): MachineTraces {
  const slots = slotNumbers(dataDir);
  const processes = hostProcesses().filter(({ uid }) => slots.includes(uid - FIRST_UID));
  const links = readdirSync("/sys/class/net");
  const mounts = readFileSync("/proc/self/mountinfo", "utf8").split("\n");
  const isOurMount = (line: string) =>
    line.includes(`${dataDir}/`) || slots.some((n) => line.includes(`/run/netns/viv-${n} `));
  return {
    processes: processes.length,
    uids: new Set(processes.map(({ uid }) => uid)).size,
    mounts: mounts.filter(isOurMount).length,
    namespaces: new Set(processes.flatMap(({ pid }) => NAMESPACES.map((kind) => tryNamespace(pid, kind))))
      .size,
    slots: slots.length,
    netns: slots.filter((n) => existsSync(`/run/netns/viv-${n}`)).length,
    links: slots.filter((n) => links.includes(`viv${n}`)).length,
    // A group goes before its slot: one that another service removes meanwhile is gone when its slot is free.
    groups: machineGroups().filter(
      ({ slot, path }) =>
        slots.includes(slot) || (!existsSync(join(SLOTS_DIR, `${slot}`)) && existsSync(path)),
    ).length,
    folders: machineFolders(dataDir),
  };
}

/** The cgroups of machines on this host. One whose slot is free is left over from a machine of some service. */
export function machineGroups(): { slot: number; path: string }[] {
  return GROUP_PARENTS.filter((parent) => existsSync(parent)).flatMap((parent) =>
    readdirSync(parent)
      .filter((name) => /^slot-\d+$/.test(name))
      .map((name) => ({ slot: Number(name.slice("slot-".length)), path: join(parent, name) })),
  );
}

/** Host pid of the machine of a session. */
export const machinePid = (dataDir: string, sessionId: string): number =>
  journalEntry(dataDir, sessionId).process.pid;

export const machineSlot = (dataDir: string, sessionId: string): number =>
  journalEntry(dataDir, sessionId).slot;

function journalEntry(dataDir: string, sessionId: string): { process: { pid: number }; slot: number } {
  const folder = machineFolders(dataDir).find((name) => name.startsWith(`${sessionId}-`));
  if (folder === undefined) throw new Error(`session ${sessionId} has no machine on this host`);
  return JSON.parse(readFileSync(join(dataDir, "pool/m", folder, "machine.json"), "utf8"));
}

export function slotNumbers(owner: string): number[] {
  if (!existsSync(SLOTS_DIR)) return [];
  return readdirSync(SLOTS_DIR)
    .filter((name) => ownerOf(name) === owner)
    .map(Number);
}

/** Data directory that owns a slot; empty if the slot was freed meanwhile. */
function ownerOf(slot: string): string {
  try {
    return readFileSync(join(SLOTS_DIR, slot), "utf8");
  } catch {
    return "";
  }
}

function machineFolders(dataDir: string): string[] {
  const dir = join(dataDir, "pool/m");
  return existsSync(dir) ? readdirSync(dir).toSorted() : [];
}

function tryNamespace(pid: number, kind: string): string {
  try {
    return namespaceOf(pid, kind);
  } catch {
    return "";
  }
}

/** Kills the machines that a test left behind, so that they do not outlive the test run. */
export function killMachines(traces: MachineTraces, dataDir: string): void {
  for (const folder of traces.folders) {
    const file = join(dataDir, "pool/m", folder, "machine.json");
    const pid = existsSync(file) ? JSON.parse(readFileSync(file, "utf8")).process?.pid : undefined;
    if (pid !== undefined && readProcess(pid)?.argv[0]?.includes("qemu")) process.kill(pid, "SIGKILL");
  }
}

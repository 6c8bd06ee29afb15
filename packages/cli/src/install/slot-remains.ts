/**
 * Finds and removes what machines have left on this host, by the slots that their data directory has taken. The node
 * does the same at its start; this is for a host whose service does not start any more. Names and numbers follow from
 * the slot's number (node/src/host/slots.ts).
 */
import { readdirSync, readFileSync } from "node:fs";
import { readdir, readFile, rm, stat } from "node:fs/promises";
import path from "node:path";
import { sleep } from "@vivarium/kit/clock";
import { runHostCommand } from "@vivarium/kit/host-command";
import { isAlive, type ProcessIdentity } from "@vivarium/kit/process-identity";
import { isSameDir } from "./directories.ts";

const SLOTS_DIR = "/run/vivarium/slots";
const FIRST_UID = 700_000;
const BAKE = "#bake";
const END_LIMIT_MS = 10_000;

/** Numbers of the slots of a data directory, also of its bakes (`<dir>#bake`). */
export async function slotsOf(dataDir: string, dir = SLOTS_DIR): Promise<number[]> {
  const owned: number[] = [];
  for (const name of (await readdir(dir).catch(() => [])).filter((one) => /^\d+$/.test(one))) {
    const owner = await readFile(path.join(dir, name), "utf8").catch(() => "");
    if (isOf(dataDir, owner)) owned.push(Number(name));
  }
  return owned;
}

/** An owner is a data directory as its service named it, which may be through a link. A `#` may be part of its name. */
function isOf(dataDir: string, owner: string): boolean {
  if (!path.isAbsolute(owner)) return false;
  return (
    isSameDir(owner, dataDir) || (owner.endsWith(BAKE) && isSameDir(owner.slice(0, -BAKE.length), dataDir))
  );
}

/** Whether services of other data directories have slots. */
export async function hasOtherSlots(dataDir: string, dir = SLOTS_DIR): Promise<boolean> {
  const all = (await readdir(dir).catch(() => [])).filter((name) => /^\d+$/.test(name));
  return all.length > (await slotsOf(dataDir, dir)).length;
}

export async function removeSlot(number: number): Promise<void> {
  await endProcesses(FIRST_UID + number);
  await runHostCommand("ip", ["link", "del", `viv${number}`]);
  await runHostCommand("ip", ["netns", "del", `viv-${number}`]);
  await rm(path.join(SLOTS_DIR, String(number)), { force: true });
}

/** Counts the machines of sessions that run, by the node's journal: also while no service runs. */
export async function countMachines(dataDir: string): Promise<number> {
  const dir = path.join(dataDir, "pool/m");
  let count = 0;
  for (const name of await readdir(dir).catch(() => [])) {
    const text = await readFile(path.join(dir, name, "machine.json"), "utf8").catch(() => "{}");
    const { state, process } = parse(text);
    if ((state === "running" || state === "held") && process && isAlive(process)) count++;
  }
  return count;
}

function parse(text: string): { state?: string; process?: ProcessIdentity } {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

async function endProcesses(uid: number): Promise<void> {
  const deadline = performance.now() + END_LIMIT_MS;
  for (let pids = await processesOf(uid); pids.length > 0; pids = await processesOf(uid)) {
    if (performance.now() > deadline) throw new Error(`processes ${pids.join(", ")} of a machine do not end`);
    for (const pid of pids) {
      try {
        process.kill(pid, "SIGKILL");
      } catch {
        // It has ended meanwhile.
      }
    }
    await sleep(50);
  }
}

async function processesOf(uid: number): Promise<number[]> {
  const pids = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  const found = await Promise.all(
    pids.map(async (pid) => {
      const owner = await stat(`/proc/${pid}`).catch(() => undefined);
      return owner?.uid === uid && !isZombie(pid) ? Number(pid) : undefined;
    }),
  );
  return found.filter((pid) => pid !== undefined);
}

function isZombie(pid: string): boolean {
  try {
    return /\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return true;
  }
}

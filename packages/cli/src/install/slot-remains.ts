/**
 * Finds and removes what machines have left on this host, by the slots that their data directory has taken. The node
 * does the same at its start; this is for a host whose service does not start any more. Names and numbers follow from
 * the slot's number (node/src/host/slots.ts).
 */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { readdir, readFile, rm, rmdir, stat } from "node:fs/promises";
import path from "node:path";
import { MACHINES_UNIT } from "@vivarium/contract/node";
import { sleep } from "@vivarium/kit/clock";
import { everyStep } from "@vivarium/kit/every-step";
import { runHostCommand } from "@vivarium/kit/host-command";
import { isAlive, type ProcessIdentity } from "@vivarium/kit/process-identity";
import { hasCode } from "@vivarium/kit/unknown-error";
import { isSameDir } from "./directories.ts";

const SLOTS_DIR = "/run/vivarium/slots";
/** Group of all machines on hosts without systemd. */
export const OWN_GROUP = "/sys/fs/cgroup/vivarium";
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

/** Where the kernel shows what a slot has. Tests have others. */
const PLACES = {
  slotsDir: SLOTS_DIR,
  linksDir: "/sys/class/net",
  namespacesDir: "/run/netns",
  /** Groups that may have one of the machine (node/src/host/cgroup-parent.ts). */
  groupParents: [
    OWN_GROUP,
    ...["", "/unified"].map((tree) => `/sys/fs/cgroup${tree}/system.slice/${MACHINES_UNIT}`),
  ],
};

/** Everything of the slots, each part also after one that stays. Throws with all that stays. */
export async function removeSlots(numbers: readonly number[], places = PLACES): Promise<void> {
  await everyStep(numbers.map((one) => ({ name: `slot ${one}`, run: () => removeSlot(one, places) })));
}

/** A slot of which something stays is not freed: no other machine gets its names, and a repetition finds it. */
async function removeSlot(number: number, places: typeof PLACES): Promise<void> {
  const link = `viv${number}`;
  const netns = `viv-${number}`;
  await everyStep([
    { name: "end of its processes", run: () => endProcesses(FIRST_UID + number) },
    { name: "its link", run: () => removeWith(["link", "del", link], path.join(places.linksDir, link)) },
    {
      name: "its namespace",
      run: () => removeWith(["netns", "del", netns], path.join(places.namespacesDir, netns)),
    },
    ...places.groupParents.map((parent) => ({
      name: "its cgroup",
      run: () => removeGroups(path.join(parent, `slot-${number}`)),
    })),
  ]);
  await rm(path.join(places.slotsDir, String(number)), { force: true });
}

/** Removes by a command of `ip`, and looks whether the thing is gone: it may not have been there. */
async function removeWith(args: string[], shownAs: string): Promise<void> {
  const { code, stderr } = await runHostCommand("ip", args);
  if (existsSync(shownAs))
    throw new Error(`ip ${args.join(" ")}: ${stderr.trim() || `exit code ${code}, and it is still there`}`);
}

/** Groups are directories that only `rmdir` removes, the inner ones first. One is busy until its last process has ended. */
export async function removeGroups(dir: string): Promise<void> {
  const names = await readdir(dir, { withFileTypes: true }).catch(() => []);
  for (const entry of names) if (entry.isDirectory()) await removeGroups(path.join(dir, entry.name));
  const deadline = performance.now() + END_LIMIT_MS;
  for (;;) {
    try {
      return await rmdir(dir);
    } catch (error) {
      if (hasCode(error, "ENOENT")) return;
      if (!hasCode(error, "EBUSY") || performance.now() > deadline) throw error;
    }
    await sleep(50);
  }
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

/** Ends all processes of a cgroup and removes it. */
import { existsSync } from "node:fs";
import { readdir, readFile, rmdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { sleep } from "@vivarium/kit/clock";

const FIRST_PAUSE_MS = 2;
const LONGEST_PAUSE_MS = 100;

/**
 * Kills every process of the group and of those below it, waits until they are gone, and removes the groups. The kill
 * is asynchronous: a group stays busy until its last process has ended. Safe to repeat; an absent group is removed.
 */
export async function removeGroup(group: string, limitMs: number): Promise<void> {
  if (!existsSync(group)) return;
  const deadline = performance.now() + limitMs;
  await killAll(group);
  for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
    if (!(await hasProcesses(group)) && (await removeEmpty(group))) return;
    if (performance.now() > deadline)
      throw new Error(
        `cgroup ${group} is still in use ${limitMs} ms after SIGKILL: ${await describe(group)}`,
      );
    await sleep(pause);
  }
}

/** Whether the group or one below it has a process, from its `cgroup.events`. */
export function isPopulated(events: string): boolean {
  return /^populated 1$/m.test(events);
}

async function killAll(group: string): Promise<void> {
  try {
    await writeFile(path.join(group, "cgroup.kill"), "1");
  } catch (error) {
    if (isGone(error) && !existsSync(group)) return;
    throw error;
  }
}

async function hasProcesses(group: string): Promise<boolean> {
  try {
    return isPopulated(await readFile(path.join(group, "cgroup.events"), "utf8"));
  } catch (error) {
    if (isGone(error)) return false;
    throw error;
  }
}

/** Removes the group after those below it. False if it is still busy: the kernel may need another moment. */
async function removeEmpty(group: string): Promise<boolean> {
  for (const below of await groupsBelow(group)) if (!(await removeEmpty(below))) return false;
  try {
    await rmdir(group);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EBUSY") return false;
    if (isGone(error)) return true;
    throw error;
  }
}

async function groupsBelow(group: string): Promise<string[]> {
  const entries = await readdir(group, { withFileTypes: true }).catch(() => []);
  return entries.filter((entry) => entry.isDirectory()).map(({ name }) => path.join(group, name));
}

/** Its processes with what each waits for, for the operator who has to find out why they do not end. */
async function describe(group: string): Promise<string> {
  const pids = await readFile(path.join(group, "cgroup.procs"), "utf8").catch(() => "");
  const lines = pids
    .split("\n")
    .filter(Boolean)
    .map(async (pid) => {
      const status = await readFile(`/proc/${pid}/status`, "utf8").catch(() => "");
      const field = (name: string) => new RegExp(`^${name}:\\s+(.+)$`, "m").exec(status)?.[1] ?? "gone";
      return `pid ${pid} (${field("Name")}, state ${field("State")})`;
    });
  return (await Promise.all(lines)).join(", ") || "no process of its own";
}

/** ENODEV: the group was removed between opening a file of it and reading it. */
const isGone = (error: unknown) => ["ENOENT", "ENODEV"].includes((error as NodeJS.ErrnoException).code ?? "");

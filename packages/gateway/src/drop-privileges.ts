import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { promisify } from "node:util";

const runFile = promisify(execFile);

/** Two for each flow of each of many machines, and as many again for visitors of previews. */
export const DESCRIPTORS = 262_144;

/** Missing in the type declarations of Node. */
type WithInitgroups = NodeJS.Process & { initgroups(user: string, extraGroup: number): void };

/**
 * When started as root: no core files from here on, and becomes the given user for good. The change of user makes the
 * process undumpable too, so that no other process of that user reads what passes through it.
 */
export async function becomeUser(user: string): Promise<void> {
  if (process.getuid?.() !== 0 || user === "") return;
  const { uid, gid } = await findAccount(user);
  await runFile("prlimit", ["--pid", String(process.pid), "--core=0:0"]);
  (process as WithInitgroups).initgroups(user, gid);
  process.setgid?.(gid);
  process.setuid?.(uid);
}

/** Raises the limit as far as this host allows, and returns it. Needs root, so it comes before the change of user. */
export async function raiseDescriptors(): Promise<number> {
  const limit = `--nofile=${DESCRIPTORS}:${DESCRIPTORS}`;
  await runFile("prlimit", ["--pid", String(process.pid), limit]).catch(() => undefined);
  const limits = await readFile("/proc/self/limits", "utf8");
  return Number(/^Max open files\s+(\d+)/m.exec(limits)?.[1] ?? 0);
}

async function findAccount(user: string): Promise<{ uid: number; gid: number }> {
  const lines = (await readFile("/etc/passwd", "utf8")).split("\n");
  const fields = lines.map((line) => line.split(":")).find(([name]) => name === user);
  if (!fields) {
    throw new Error(
      `there is no system user "${user}": make it (useradd --system ${user}) or set VIV_GATEWAY_USER`,
    );
  }
  return { uid: Number(fields[2]), gid: Number(fields[3]) };
}

import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { promisify } from "node:util";
import { becomeAccount, requireAccount } from "@vivarium/kit/account";

const runFile = promisify(execFile);

/** Two for each flow of each of many machines, and as many again for visitors of previews. */
export const DESCRIPTORS = 262_144;

/**
 * When started as root: no core files from here on, and becomes the given user for good. The change of user makes the
 * process undumpable too, so that no other process of that user reads what passes through it.
 */
export async function becomeUser(user: string): Promise<void> {
  if (process.getuid?.() !== 0 || user === "") return;
  const account = await requireAccount(user, "VIV_GATEWAY_USER");
  await runFile("prlimit", ["--pid", String(process.pid), "--core=0:0"]);
  becomeAccount(account);
}

/** Raises the limit as far as this host allows, and returns it. Needs root, so it comes before the change of user. */
export async function raiseDescriptors(): Promise<number> {
  const limit = `--nofile=${DESCRIPTORS}:${DESCRIPTORS}`;
  await runFile("prlimit", ["--pid", String(process.pid), limit]).catch(() => undefined);
  const limits = await readFile("/proc/self/limits", "utf8");
  return Number(/^Max open files\s+(\d+)/m.exec(limits)?.[1] ?? 0);
}

/** Raises the limit of open files, and gives up root for the gateway's own user. */
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { promisify } from "node:util";
import { becomeAccount, requireAccount } from "@vivarium/kit/account";
import { forbidCoreFiles } from "@vivarium/kit/core-files";

const runFile = promisify(execFile);

/** Open files that the gateway needs: two sockets for each flow of many machines, and as many for previews. */
export const DESCRIPTORS = 262_144;

/**
 * Forbids core files, and as root becomes the given user for good. The change of user also makes the process
 * undumpable, so no other process of that user can read the bytes that pass through it.
 */
export async function becomeUser(user: string): Promise<void> {
  await forbidCoreFiles();
  if (process.getuid?.() !== 0 || user === "") return;
  const account = await requireAccount(user, "VIV_GATEWAY_USER");
  becomeAccount(account);
}

/** Raises the limit of open files as far as this host allows, and returns it. Needs root, so before `becomeUser`. */
export async function raiseDescriptors(): Promise<number> {
  const limit = `--nofile=${DESCRIPTORS}:${DESCRIPTORS}`;
  await runFile("prlimit", ["--pid", String(process.pid), limit]).catch(() => undefined);
  const limits = await readFile("/proc/self/limits", "utf8");
  return Number(/^Max open files\s+(\d+)/m.exec(limits)?.[1] ?? 0);
}

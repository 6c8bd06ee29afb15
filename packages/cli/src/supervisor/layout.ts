import { existsSync } from "node:fs";
import { chmod, chown, lchown, lstat, mkdir, readdir } from "node:fs/promises";
import path from "node:path";
import type { Account } from "@vivarium/kit/account";
import { requireData } from "./data-in-use.ts";

/** Names of rows in control's directory that were saved before the schema changed (control/src/db/save-rows.ts). */
export const SAVED_ROWS = /^rows-\d{4,}-\d{8}T\d{9}\.jsonl$/;

/** The paths of one service below its data directory. */
export type Layout = ReturnType<typeof layoutOf>;

export function layoutOf(dataDir: string, imagesDir?: string) {
  const runDir = path.join(dataDir, "run");
  return {
    dataDir,
    imagesDir: imagesDir ?? path.join(dataDir, "pool", "images"),
    runDir,
    nodeSocket: path.join(runDir, "node.sock"),
    gatewaySocket: path.join(runDir, "gateway.sock"),
    lockFile: path.join(runDir, "supervisor.lock"),
    partsFile: path.join(runDir, "parts.json"),
    logDir: path.join(dataDir, "log"),
    controlDir: path.join(dataDir, "control"),
    postgresDir: path.join(dataDir, "postgres"),
    postgresSocketDir: path.join(runDir, "postgres"),
  };
}

export function logFile(layout: Layout, name: string): string {
  return path.join(layout.logDir, `${name}.log`);
}

/**
 * Makes the directories needed before the lock. The service user must enter the first two; the logs are root's. Fails before
 * that if the data that is in use is not there.
 */
export async function makeBaseDirs(layout: Layout): Promise<void> {
  await requireData(layout.dataDir);
  for (const dir of [layout.dataDir, layout.runDir]) await makeDir(dir, 0o755);
  await makeDir(layout.logDir, 0o750);
}

/** Makes the directories of the unprivileged processes. */
export async function makeUserDirs(layout: Layout, user: Account): Promise<void> {
  await makeDir(layout.postgresDir, 0o755);
  for (const dir of [layout.controlDir, layout.postgresSocketDir]) {
    await makeDir(dir, 0o700);
    await giveTo(dir, user);
  }
}

/**
 * After an uninstall the files in it are root's, and those of a copy may be another user's. They are given with the
 * directory, which is so the last: as long as it is not the user's, that user can have put nothing into it.
 */
async function giveTo(dir: string, { uid, gid }: Account): Promise<void> {
  const owner = (await lstat(dir)).uid;
  for (const name of owner === uid ? [] : await readdir(dir)) {
    const file = path.join(dir, name);
    const found = await lstat(file);
    if (found.isFile() && found.nlink === 1 && found.uid === owner) await lchown(file, uid, gid);
  }
  await chown(dir, uid, gid);
}

/** Whether a kernel and the base template exist: no machine can start without them. */
export function hasImages(layout: Layout): boolean {
  return (
    existsSync(path.join(layout.imagesDir, "kernel", "vmlinuz")) &&
    existsSync(path.join(layout.imagesDir, "templates", "base", "current"))
  );
}

/** Makes a directory and sets its mode: `mkdir` applies the umask, and the directory may be older. */
async function makeDir(dir: string, mode: number): Promise<void> {
  await mkdir(dir, { recursive: true });
  await chmod(dir, mode);
}

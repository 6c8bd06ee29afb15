/** Mounts the storage pool of a data directory, and unmounts it. */
import { existsSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import path from "node:path";
import { sleep } from "@vivarium/kit/clock";
import { runHostCommand } from "@vivarium/kit/host-command";
import { CliError } from "../cli-error.ts";
import type { Layout } from "./layout.ts";
import { MOUNT_POOL } from "./repository.ts";

/** A command that was ended may hold files of the pool for a moment longer. */
const UNMOUNT_ATTEMPTS = 20;
const UNMOUNT_PAUSE_MS = 100;

const poolOf = ({ dataDir }: Layout) => path.join(dataDir, "pool");

/** Whether the pool is in a file that is not mounted, as after a boot: what is below its path then is not the pool. */
export async function isPoolUnmounted(layout: Layout): Promise<boolean> {
  if (!existsSync(path.join(layout.dataDir, "pool.img"))) return false;
  return (await runHostCommand("mountpoint", ["-q", poolOf(layout)])).code !== 0;
}

/** Unmounts the pool, which frees its loop device. Its files must not be in use. */
export async function unmountPool(layout: Layout): Promise<void> {
  const pool = poolOf(layout);
  for (let attempt = 1; ; attempt++) {
    const { code, stderr } = await runHostCommand("umount", [pool]);
    if (code === 0) return;
    if (attempt === UNMOUNT_ATTEMPTS) throw new Error(`the pool at ${pool} stays mounted: ${stderr.trim()}`);
    await sleep(UNMOUNT_PAUSE_MS);
  }
}

/** Mounts the storage pool, whose files share blocks when copied, and creates it at the first start. */
export async function mountPool(layout: Layout): Promise<void> {
  if (!existsSync(MOUNT_POOL)) {
    await mkdir(path.join(layout.dataDir, "pool"), { recursive: true });
    return;
  }
  const { code, stderr, stdout } = await runHostCommand(MOUNT_POOL, [layout.dataDir], { timeoutMs: 120_000 });
  if (code === 0) return;
  throw new CliError(`the storage pool is not usable: ${(stderr || stdout).trim() || `exit code ${code}`}`);
}

/**
 * What a command reads of a data directory: the database and the pool of the service that runs. Where none runs, they are
 * started and mounted for the command alone, under the lock, so that no service begins to use them meanwhile.
 */
import { existsSync } from "node:fs";
import path from "node:path";
import { CliError } from "../cli-error.ts";
import { type Layout, makeBaseDirs } from "../supervisor/layout.ts";
import { refuseCommand, takeForCommand } from "../supervisor/lock.ts";
import { isPoolUnmounted, mountPool, unmountPool } from "../supervisor/pool.ts";
import type { Terminal } from "../terminal.ts";
import { addressOfRunning, type DatabasePlace, hasCluster, startDatabase } from "./database.ts";

/** `pool`: undefined if it is not there to be read. */
interface Pool {
  pool: string | undefined;
  /** Whether the lock is held for as long as the work takes. */
  isHeld: boolean;
}

/** Calls `work` with the pool, which is mounted if it `isNeeded`. */
export async function withPool<T>(
  {
    layout,
    terminal,
    isNeeded,
    command,
  }: { layout: Layout; terminal: Pick<Terminal, "note">; isNeeded: boolean; command: string },
  work: (pool: Pool) => Promise<T>,
): Promise<T> {
  const pool = path.join(layout.dataDir, "pool");
  const isUnmounted = await isPoolUnmounted(layout);
  if (!isUnmounted || !isNeeded)
    return await work({ pool: isUnmounted || !existsSync(pool) ? undefined : pool, isHeld: false });
  const lock = await take(layout, command);
  if (!lock)
    throw new CliError(`the service of ${layout.dataDir} runs, and its pool at ${pool} is not mounted`, {
      hint: "If it is just starting, try again once it answers. Else start it again, which mounts the pool.",
    });
  try {
    terminal.note(`viv: mounting the pool at ${pool} for as long as this takes: no service runs`);
    await mountPool(layout);
    try {
      return await work({ pool, isHeld: true });
    } finally {
      await unmountPool(layout).catch((error: Error) => terminal.note(`viv: ${error.message}`));
    }
  } finally {
    await lock.release();
  }
}

/** Calls `work` with the database's address: of the service that runs, or of a database that runs for this alone. */
export async function withAddress<T>(
  {
    layout,
    place,
    isHeld,
    command,
  }: { layout: Layout; place: DatabasePlace; isHeld: boolean; command: string },
  work: (url: string) => Promise<T>,
): Promise<T> {
  if (place.url !== undefined) return await work(place.url);
  if (!hasCluster(layout)) return await work(await addressOfRunning(layout, place));
  const lock = isHeld ? undefined : await take(layout, command);
  if (!isHeld && !lock) return await work(await addressOfRunning(layout, place));
  try {
    const database = await startDatabase(layout, place);
    return await work(database.url).finally(() => database.stop());
  } finally {
    await lock?.release();
  }
}

/** Takes the lock; undefined if a service has it. */
async function take(layout: Layout, command: string): Promise<{ release: () => Promise<void> } | undefined> {
  // An uninstall has removed the lock's directory.
  await makeBaseDirs(layout);
  const lock = await takeForCommand(layout.lockFile, command);
  if ("release" in lock) return lock;
  refuseCommand(lock.holder, layout.dataDir);
  return undefined;
}

/** One process at a time updates a unit. */
import { mkdir, rmdir } from "node:fs/promises";
import path from "node:path";
import { sleep } from "@vivarium/kit/clock";
import { CliError } from "../cli-error.ts";
import { takeForCommand } from "../supervisor/lock.ts";
import { copiesDirOf } from "./copies.ts";
import { journalFileOf, readJournal } from "./journal.ts";

const POLL_MS = 1_000;

export interface UpdateLock {
  release: () => Promise<void>;
}

export async function takeUpdateLock(
  unit: string,
  command: "viv install" | "viv uninstall",
): Promise<UpdateLock> {
  const lock = await tryLock(unit, command);
  if ("release" in lock) return lock;
  const { pid, command: atWork = "viv install" } = lock.holder;
  throw new CliError(`${atWork} (pid ${pid}) is at work on ${unit}.service`, {
    hint: "Wait until it has ended.",
  });
}

/** Waits until the process that runs an update dies. Undefined if it has ended the update first. */
export async function takeLockOfDead(unit: string): Promise<UpdateLock | undefined> {
  while (await readJournal(journalFileOf(copiesDirOf(unit)))) {
    const lock = await tryLock(unit, "viv install");
    if ("release" in lock) return lock;
    await sleep(POLL_MS);
  }
  return undefined;
}

async function tryLock(unit: string, command: string): ReturnType<typeof takeForCommand> {
  const dir = copiesDirOf(unit);
  await mkdir(dir, { recursive: true, mode: 0o755 });
  const lock = await takeForCommand(path.join(dir, "update.lock"), command);
  if ("holder" in lock) return lock;
  const release = async () => {
    await lock.release();
    // An install that was refused leaves nothing.
    for (const empty of [dir, path.dirname(dir)]) await rmdir(empty).catch(() => {});
  };
  return { release };
}

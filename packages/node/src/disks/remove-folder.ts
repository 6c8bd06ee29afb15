/** Removes a folder in two steps: it counts as removed from its rename on, whatever is left of its files. */
import { readdir, rename, rm } from "node:fs/promises";
import path from "node:path";
import { syncPath } from "@vivarium/kit/durable-file";
import { KeyedQueue } from "@vivarium/kit/keyed-queue";

const REMOVED = ".removed";
/** Removals by folder. Two at a time would empty the same remains, and each fail at what the other one takes away. */
const removals = new KeyedQueue();

/** A folder that is not there is removed. `onRenamed` is called once it counts as removed, and that is durable. */
export async function removeInSteps(dir: string, onRenamed: () => void): Promise<void> {
  await removals.run(dir, async () => {
    const removed = `${dir}${REMOVED}`;
    await rm(removed, { recursive: true, force: true });
    try {
      await rename(dir, removed);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return;
      throw error;
    }
    await syncPath(path.dirname(dir));
    onRenamed();
    await rm(removed, { recursive: true, force: true });
  });
}

/** Whether a name is that of a folder which was being removed when the daemon died. */
export const isHalfRemoved = (name: string): boolean => name.endsWith(REMOVED);

/** Removes what a crash left of removed folders. Returns their names. */
export async function removeHalfRemoved(parent: string): Promise<string[]> {
  const left = (await readdir(parent)).filter(isHalfRemoved);
  for (const name of left) await rm(path.join(parent, name), { recursive: true, force: true });
  return left;
}

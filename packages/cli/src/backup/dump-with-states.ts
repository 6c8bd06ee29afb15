/** Dumps the database's rows while the saved states that they refer to are kept by further names. */
import { existsSync } from "node:fs";
import { readdir, rename, rm } from "node:fs/promises";
import path from "node:path";
import { sleep } from "@vivarium/kit/clock";
import { isSnapshotId } from "./check-names.ts";
import { ROWS_FILE, STATES_DIR } from "./manifest.ts";
import { dumpRows, type Head } from "./rows.ts";
import { pinSnapshot } from "./saved-state.ts";

/** A saved state that was deleted between the rows' instant and its keeping is not in the rows of the next attempt. */
const ATTEMPTS = 5;
/** Pause between two looks for new saved states. One that lives shorter than this, unlike a real one, can be missed. */
const PIN_EVERY_MS = 5;

/** Returns the head of the dump, and the saved states that its rows refer to and the node does not have. */
export async function dumpWithStates(
  url: string,
  { dir, pool, savedState }: { dir: string; pool: string; savedState: boolean },
): Promise<{ head: Head; missing: string[] }> {
  const [source, target] = [path.join(pool, "s"), path.join(dir, STATES_DIR)];
  let before: string | undefined;
  for (let attempt = 1; ; attempt++) {
    const rows = path.join(dir, attempt === 1 ? ROWS_FILE : `${ROWS_FILE}.${attempt}`);
    const missing: string[] = [];
    const head = savedState
      ? await whilePinning({ source, target }, (endPinning) =>
          dumpRows(url, rows, async ({ snapshots }) => {
            await endPinning();
            for (const id of snapshots) {
              const pinned = path.join(target, id);
              // The database is control's: a name in it that is no id could lead anywhere.
              const isKept =
                isSnapshotId(id) &&
                (existsSync(pinned) || (await pinSnapshot(path.join(source, id), pinned)));
              if (!isKept) missing.push(id);
            }
          }),
        )
      : await dumpRows(url, rows, async () => {});
    // The same ones twice: they are not being deleted, but lost.
    const isSettled = missing.length === 0 || missing.join() === before || attempt === ATTEMPTS;
    if (attempt > 1) await rename(rows, path.join(dir, ROWS_FILE));
    if (isSettled) {
      await removeOthers(target, head.snapshots);
      return { head, missing };
    }
    before = missing.join();
  }
}

/**
 * Keeps every saved state that there is, and each that appears, until the work calls `endPinning` or ends: as long as the
 * rows' instant is not known, they may refer to any of them. Those that no row refers to are removed later.
 */
async function whilePinning<T>(
  { source, target }: { source: string; target: string },
  work: (endPinning: () => Promise<void>) => Promise<T>,
): Promise<T> {
  const isKnown = new AbortController();
  const pinning = keepPinning(source, target, isKnown.signal);
  // A failure is thrown where it is awaited.
  pinning.catch(() => {});
  const endPinning = async () => {
    isKnown.abort();
    await pinning;
  };
  try {
    return await work(endPinning);
  } finally {
    await endPinning();
  }
}

async function keepPinning(source: string, target: string, until: AbortSignal): Promise<void> {
  await pinAll(source, target);
  while (!until.aborted) {
    await sleep(PIN_EVERY_MS, until);
    await pinAll(source, target);
  }
}

async function pinAll(source: string, target: string): Promise<void> {
  for (const id of await readdir(source).catch(() => []))
    if (!existsSync(path.join(target, id))) await pinSnapshot(path.join(source, id), path.join(target, id));
}

/** Removes what an earlier attempt has kept and the last one's rows do not refer to. */
async function removeOthers(dir: string, wanted: readonly string[]): Promise<void> {
  for (const name of await readdir(dir).catch(() => []))
    if (!wanted.includes(name)) await rm(path.join(dir, name), { recursive: true });
}

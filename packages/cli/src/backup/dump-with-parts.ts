/** Dumps the database's rows, and keeps the saved states, volumes and objects that they refer to as they are then. */
import { existsSync } from "node:fs";
import { readdir, rename, rm } from "node:fs/promises";
import path from "node:path";
import { sleep } from "@vivarium/kit/clock";
import { isSnapshotId, isVolumeId } from "./check-names.ts";
import { ROWS_FILE, STATES_DIR, VOLUMES_DIR } from "./manifest.ts";
import {
  dropOtherObjects,
  type KeptObjects,
  keepAllObjects,
  keepObjects,
  type ObjectKind,
  ownerOfPrefix,
} from "./objects.ts";
import { dumpRows, type Head } from "./rows.ts";
import { pinSnapshot } from "./saved-state.ts";
import { keepVolume } from "./volumes.ts";

/** A state or volume that was deleted between the rows' instant and its keeping is not in the rows of the next attempt. */
const ATTEMPTS = 5;
/** Pause between two looks for new ones. One that lives shorter than this, unlike a real one, can be missed. */
const PIN_EVERY_MS = 5;

export interface ObjectParts {
  dir: string;
  target: string;
  kinds: readonly ObjectKind[];
}

/** Parts of a backup that are kept besides the rows. */
export interface Parts {
  savedState: boolean;
  volumes: boolean;
  /** A store in a directory, whose objects of these kinds are kept below `target`. */
  objects?: ObjectParts | undefined;
}

interface Kept {
  head: Head;
  /** Ids that rows refer to, of parts that were asked for and are not there. */
  missing: string[];
}

/** Returns the head of the dump, and what its rows refer to that is not there. */
export async function dumpWithParts(
  url: string,
  { dir, pool, parts }: { dir: string; pool: string; parts: Parts },
): Promise<Kept> {
  const [source, target] = [path.join(pool, "s"), path.join(dir, STATES_DIR)];
  let before: string | undefined;
  for (let attempt = 1; ; attempt++) {
    const rows = path.join(dir, attempt === 1 ? ROWS_FILE : `${ROWS_FILE}.${attempt}`);
    const missing: string[] = [];
    const known = new Set<string>();
    const pinAll = async () => {
      if (parts.savedState) await pinAllStates(source, target);
      if (parts.objects) await keepAllObjects(parts.objects, known);
    };
    const head = await whilePinning(pinAll, (endPinning) =>
      dumpRows(url, rows, async (found) => {
        await endPinning();
        if (parts.savedState) missing.push(...(await keepStates({ source, target }, found)));
        if (parts.volumes) missing.push(...(await keepVolumes(pool, dir, found)));
        if (parts.objects) missing.push(...(await keepFound(parts.objects, found)));
      }),
    );
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

async function keepStates(
  { source, target }: { source: string; target: string },
  { snapshots }: Head,
): Promise<string[]> {
  const missing: string[] = [];
  for (const id of snapshots) {
    const pinned = path.join(target, id);
    // The database is control's: a name in it that is no id could lead anywhere.
    const isKept =
      isSnapshotId(id) && (existsSync(pinned) || (await pinSnapshot(path.join(source, id), pinned)));
    if (!isKept) missing.push(id);
  }
  return missing;
}

async function keepVolumes(pool: string, dir: string, { volumes }: Head): Promise<string[]> {
  const [source, target] = [path.join(pool, "v"), path.join(dir, VOLUMES_DIR)];
  await rm(target, { recursive: true, force: true });
  const missing: string[] = [];
  for (const id of volumes) {
    const isKept = isVolumeId(id) && (await keepVolume(path.join(source, id), path.join(target, id)));
    if (!isKept) missing.push(id);
  }
  return missing;
}

/** The artifacts and spaces of which an object is missing. Nothing is kept of such an artifact, and of a space what is there. */
async function keepFound({ dir, target, kinds }: ObjectParts, head: Head): Promise<string[]> {
  const missing: string[] = [];
  const kept: string[] = [];
  for (const kind of kinds)
    for (const found of head[kind]) {
      const isWhole = await keepObjects(dir, target, found);
      if (!isWhole) missing.push(ownerOf(found));
      // A space has many archives, and that of baselines what all others differ from.
      if (isWhole || kind === "archives") kept.push(found.prefix);
    }
  await dropOtherObjects(target, kept);
  return missing;
}

/** The id of the artifact or space. */
export const ownerOf = ({ prefix }: KeptObjects): string => ownerOfPrefix(prefix) ?? prefix;

/**
 * Keeps every saved state and object that there is, and each that appears, until the work calls `endPinning` or ends: as
 * long as the rows' instant is not known, they may refer to any of them. Those that no row refers to are removed later.
 */
async function whilePinning<T>(
  pinAll: () => Promise<void>,
  work: (endPinning: () => Promise<void>) => Promise<T>,
): Promise<T> {
  // First what is there, which may take long; what appears later is little.
  await pinAll();
  const isKnown = new AbortController();
  const pinning = keepPinning(pinAll, isKnown.signal);
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

async function keepPinning(pinAll: () => Promise<void>, until: AbortSignal): Promise<void> {
  while (!until.aborted) {
    await sleep(PIN_EVERY_MS, until);
    await pinAll();
  }
}

async function pinAllStates(source: string, target: string): Promise<void> {
  for (const id of await readdir(source).catch(() => []))
    if (!existsSync(path.join(target, id))) await pinSnapshot(path.join(source, id), path.join(target, id));
}

/** Removes what an earlier attempt has kept and the last one's rows do not refer to. */
async function removeOthers(dir: string, wanted: readonly string[]): Promise<void> {
  for (const name of await readdir(dir).catch(() => []))
    if (!wanted.includes(name)) await rm(path.join(dir, name), { recursive: true });
}

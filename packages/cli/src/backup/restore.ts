/**
 * Restores a backup into a data directory whose service does not run. Everything is unpacked beside and compared with
 * the manifest's sums before anything is touched. What the data directory had is moved aside and kept.
 */
import { existsSync } from "node:fs";
import { chown, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import type { Account } from "@vivarium/kit/account";
import { syncFileSystem, syncPath } from "@vivarium/kit/durable-file";
import { CliError } from "../cli-error.ts";
import type { Context } from "../context.ts";
import { readBuild } from "../supervisor/build.ts";
import { type Layout, layoutOf, makeBaseDirs } from "../supervisor/layout.ts";
import { takeUnserved } from "../supervisor/lock.ts";
import { mountPool } from "../supervisor/pool.ts";
import { stopLeftPostgres } from "../supervisor/postgres.ts";
import { ensureServiceUser } from "../supervisor/service-user.ts";
import type { RestoreJournal } from "../supervisor/unfinished-restore.ts";
import { readFirst, unpack } from "./archive.ts";
import { checkNames } from "./check-names.ts";
import { type DataPlaces, databasePlace, hasCluster, startDatabase } from "./database.ts";
import {
  type BackupManifest,
  differences,
  KEYS_DIR,
  MANIFEST_FILE,
  OBJECTS_DIR,
  QEMU_DIR,
  ROWS_FILE,
  readManifest,
  STATES_DIR,
  VOLUMES_DIR,
} from "./manifest.ts";
import { placeObjects } from "./objects.ts";
import {
  beginRestore,
  finishRestore,
  moveAside,
  noteOwnRows,
  undoUnfinishedRestore,
  undoUnlessOwnRows,
} from "./restore-journal.ts";
import { checkLoad, loadRows, UncertainLoad } from "./rows.ts";
import { placeBuild, placeSnapshot } from "./saved-state.ts";
import { makeStaging } from "./staging.ts";
import { sumsBelow } from "./sums.ts";
import { placeVolume } from "./volumes.ts";

export interface Restored {
  manifest: BackupManifest;
  rows: number;
  /** Volumes that were there already, and are as they were. */
  unchanged: string[];
  /** Where what was there before is now. */
  aside: string[];
}

interface RestoreOptions {
  force: boolean;
  signal: AbortSignal;
}

export async function restoreBackup(
  { config, terminal }: Context,
  file: string,
  { force, signal }: RestoreOptions,
): Promise<Restored> {
  const layout = layoutOf(config.dataDir, config.imagesDir);
  const manifest = readManifest(await readFirst(file, MANIFEST_FILE), await readBuild());
  checkNames(manifest);
  await makeBaseDirs(layout);
  const lock = await takeUnserved(layout, "viv restore-backup");
  try {
    const place = databasePlace(config);
    if (place.objectsDir === undefined && manifest.artifacts.length > 0) throw bucketFor(manifest);
    const undone = await undoUnfinishedRestore(layout);
    if (undone) terminal.note(`viv: the restore of ${undone.backup}, which was interrupted, is undone first`);
    if (!force) checkUnused(layout);
    if (place.url !== undefined) await checkLoad(place.url, { keepAside: force ? "restore" : undefined });
    await mountPool(layout);
    await using staging = await makeStaging(path.join(layout.dataDir, "pool"));
    terminal.note(`viv: unpacking ${file}, made at ${manifest.made_at} by ${manifest.made_by}`);
    await unpack(file, staging.dir, signal);
    await verify(staging.dir, manifest);
    // A state or a volume has its name only once it is on disk: what has the name is taken as whole by every later restore.
    await syncFileSystem(staging.dir);
    terminal.note("viv: every file is as the manifest says");
    signal.throwIfAborted();
    const hasOwnRows = undone?.hasOwnRows ?? false;
    const putting = { layout, place, force, file, dir: staging.dir, hasOwnRows };
    return { manifest, ...(await put(putting, manifest)) };
  } finally {
    await lock.release();
  }
}

const bucketFor = ({ artifacts }: BackupManifest) =>
  new CliError(
    `the backup has ${artifacts.length} artifacts, which this service would look for in a bucket (VIV_OBJECTS)`,
    {
      hint: "Nothing was changed. Restore without VIV_OBJECTS: artifacts are then in a directory of the host.",
    },
  );

function checkUnused(layout: Layout): void {
  const used = [
    ...(hasCluster(layout) ? ["a database"] : []),
    ...(existsSync(path.join(layout.controlDir, "pepper")) ? ["keys"] : []),
  ];
  if (used.length === 0) return;
  throw new CliError(`${layout.dataDir} has ${used.join(" and ")} already`, {
    hint: "With --force they are moved aside and kept. Or restore into another one: --data-dir DIR.",
  });
}

async function verify(dir: string, manifest: BackupManifest): Promise<void> {
  const names = (await readdir(dir)).filter((name) => name !== MANIFEST_FILE);
  const wrong = differences(manifest.files, await sumsBelow(dir, names));
  if (wrong.length === 0) return;
  const more = wrong.length > 5 ? ` and ${wrong.length - 5} more` : "";
  throw new CliError(`the backup is damaged: ${wrong.slice(0, 5).join(", ")}${more}`, {
    hint: "Nothing was changed. Restore another backup.",
  });
}

interface Putting {
  layout: Layout;
  place: DataPlaces;
  force: boolean;
  /** The backup. */
  file: string;
  /** Where the backup is unpacked. */
  dir: string;
  /** Whether an earlier restore may have loaded rows into the operator's own database. */
  hasOwnRows: boolean;
}

/**
 * Puts everything in its place. Until the rows are loaded, a failure puts back what was there; a kill leaves a journal, and
 * so does a load of which nobody knows whether it took place. All of it is on disk before the journal goes.
 */
async function put({ layout, place, force, file, dir, hasOwnRows }: Putting, manifest: BackupManifest) {
  const { dataDir, controlDir, postgresDir, imagesDir } = layout;
  for (const id of manifest.snapshots)
    await placeSnapshot(path.join(dir, STATES_DIR, id), path.join(dataDir, "pool/s", id), imagesDir);
  for (const build of await readdir(path.join(dir, QEMU_DIR)).catch(() => []))
    await placeBuild(path.join(dir, QEMU_DIR, build), path.join(dataDir, QEMU_DIR, build));
  const unchanged: string[] = [];
  for (const id of manifest.volumes)
    if (!(await placeVolume(path.join(dir, VOLUMES_DIR, id), path.join(dataDir, "pool/v", id))))
      unchanged.push(id);
  const user = await ensureServiceUser(place.controlUser);
  const objects = path.join(dir, OBJECTS_DIR);
  if (existsSync(objects)) await placeObjects(objects, place.localDir, user);

  const cluster = path.join(postgresDir, "data");
  if (place.url === undefined) await stopLeftPostgres(cluster);
  const moved = [controlDir, ...(place.url === undefined ? [cluster] : [])];
  const journal = await beginRestore(layout, file, moved, hasOwnRows);
  const loaded = await putRowsAndKeys({ layout, place, force, dir }, { journal, user }).catch(
    async (error: unknown) => {
      if (place.url !== undefined && error instanceof UncertainLoad) throw uncertain(layout, journal, error);
      await undoUnlessOwnRows(layout, journal);
      throw error;
    },
  );
  for (const written of [dataDir, path.join(dataDir, "pool"), postgresDir])
    if (existsSync(written)) await syncFileSystem(written);
  const aside = await finishRestore(layout, journal);
  if (loaded.aside !== undefined) aside.push(`the schema ${loaded.aside} of the database`);
  return { rows: loaded.rows ?? 0, unchanged, aside };
}

async function putRowsAndKeys(
  { layout, place, force, dir }: Pick<Putting, "layout" | "place" | "force" | "dir">,
  { journal, user }: { journal: RestoreJournal; user: Account },
) {
  await moveAside(layout, journal);
  await putKeys(path.join(dir, KEYS_DIR), layout.controlDir, user);
  if (place.url !== undefined) await noteOwnRows(layout, journal);
  return await load({ layout, place, force }, path.join(dir, ROWS_FILE));
}

/** The keys of before may not be those of the rows: the journal stays, and with it the refusal to start. */
function uncertain({ dataDir }: Layout, { backup }: RestoreJournal, cause: UncertainLoad): CliError {
  return new CliError(`the restore is not finished: ${cause.message}`, {
    hint: `Nothing starts in ${dataDir} before it is. Repeat it once the database answers: viv restore-backup --force --data-dir ${dataDir} ${backup}`,
    cause,
  });
}

async function load({ layout, place, force }: Pick<Putting, "layout" | "place" | "force">, file: string) {
  if (place.url !== undefined)
    return await loadRows(place.url, file, { keepAside: force ? "restore" : undefined });
  const database = await startDatabase(layout, place);
  try {
    return await loadRows(database.url, file, { keepAside: undefined });
  } finally {
    await database.stop();
  }
}

/** Makes the directory anew, as root's, so that nobody else can put links into it, and then gives it away. */
async function putKeys(source: string, target: string, user: Account): Promise<void> {
  await mkdir(target, { mode: 0o700 });
  for (const name of await readdir(source)) {
    const file = path.join(target, name);
    await writeFile(file, await readFile(path.join(source, name)), { mode: 0o600, flag: "wx" });
    await syncPath(file);
    await chown(file, user.uid, user.gid);
  }
  await syncPath(target);
  await chown(target, user.uid, user.gid);
}

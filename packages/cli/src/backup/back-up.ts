/**
 * Makes a backup: rows, keys, volumes, artifacts and, if asked, saved state, while the service runs. What the rows of one
 * instant refer to is kept by further names and copies with shared blocks while they are read, and packed from these.
 */
import { existsSync } from "node:fs";
import { mkdir, readdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { CliError } from "../cli-error.ts";
import type { Context } from "../context.ts";
import { readUnprivilegedBytes } from "../service/read-unprivileged-file.ts";
import { readBuild } from "../supervisor/build.ts";
import { type Layout, layoutOf, SAVED_ROWS } from "../supervisor/layout.ts";
import { requireNoUnfinishedRestore } from "../supervisor/unfinished-restore.ts";
import { type Members, pack, readFirst } from "./archive.ts";
import { databasePlace } from "./database.ts";
import { dumpWithParts, ownerOf } from "./dump-with-parts.ts";
import { addEarlierKeks } from "./earlier-keks.ts";
import {
  type BackupManifest,
  differences,
  KEYS_DIR,
  MANIFEST_FILE,
  newManifest,
  OBJECTS_DIR,
  QEMU_DIR,
  ROWS_FILE,
  STATES_DIR,
  VOLUMES_DIR,
} from "./manifest.ts";
import { type ObjectKind, parentOfKept } from "./objects.ts";
import type { Head } from "./rows.ts";
import { buildsOf } from "./saved-state.ts";
import { withAddress, withPool } from "./source.ts";
import { makeStaging } from "./staging.ts";
import { sumsBelow } from "./sums.ts";

/** Keys as they were before the rows were read; no part of the archive. */
const EARLIER_KEYS_DIR = "control.earlier";

interface BackupOptions {
  savedState: boolean;
  volumes: boolean;
  artifacts: boolean;
  signal: AbortSignal;
}

export async function backUp(
  context: Context,
  file: string,
  { savedState, volumes, artifacts, signal }: BackupOptions,
): Promise<BackupManifest> {
  const { config, terminal } = context;
  const layout = layoutOf(config.dataDir, config.imagesDir);
  if (!existsSync(layout.controlDir)) throw noKeys(layout.controlDir);
  await requireNoUnfinishedRestore(layout);
  const place = databasePlace(config);
  const isNeeded = savedState || volumes;
  const command = "viv backup";
  return await withPool({ layout, terminal, isNeeded, command }, async ({ pool, isHeld }) => {
    await using staging = await makeStaging(pool ?? layout.dataDir);
    const { objectsDir, localDir } = place;
    const hasArtifacts = artifacts && objectsDir !== undefined;
    const kek = foreignKek(config, layout);
    if (kek !== undefined)
      terminal.note(
        `viv: the keys that seal secrets are not in the backup, as ${kek} says where they are: without a copy of them nothing sealed can be read`,
      );
    if (artifacts && objectsDir === undefined)
      terminal.note(
        "viv: artifacts are in a bucket, and not in the backup: copy it beside, after the backup",
      );
    const kinds: ObjectKind[] = [
      ...(hasArtifacts ? (["artifacts"] as const) : []),
      ...(savedState ? (["archives"] as const) : []),
    ];
    await using beside = kinds.length > 0 ? await keptBeside(config.dataDir, localDir) : undefined;
    const objects = beside && { dir: beside.of, target: beside.dir, kinds };
    await copyKeys(layout.controlDir, path.join(staging.dir, EARLIER_KEYS_DIR));
    const { head, missing } = await withAddress({ layout, place, isHeld, command }, (url) =>
      dumpWithParts(url, {
        dir: staging.dir,
        pool: pool ?? layout.dataDir,
        parts: { savedState, volumes, objects },
      }),
    );
    signal.throwIfAborted();
    terminal.note(`viv: the database's rows are saved (schema ${head.schema})`);
    if (head.imported.length > 0) terminal.note(noteOn(head.imported));
    const wanted = namesIn(head);
    const there = (isAsked: boolean, ids: string[]) =>
      isAsked ? ids.filter((id) => !missing.includes(id)) : [];
    const present = {
      snapshots: there(savedState, wanted.snapshots),
      volumes: there(volumes, wanted.volumes),
      artifacts: there(hasArtifacts, wanted.artifacts),
      archives: there(savedState, wanted.archives),
    };
    await checkReplaced(file, { wanted, present });
    const facts = { head, savedState, present, missing };
    return await write({ context, layout, dir: staging.dir, objects: beside?.dir, signal }, file, facts);
  });
}

/** The setting by which the key-encryption keys are elsewhere than in the directory that is saved. */
function foreignKek({ childEnv }: Context["config"], { controlDir }: Layout): string | undefined {
  const { VIV_KEK_FILE: file } = childEnv;
  if (file) return path.dirname(path.resolve(file)) === controlDir ? undefined : "VIV_KEK_FILE";
  return ["VIV_KEK", "VIV_KEK_COMMAND"].find((name) => childEnv[name]);
}

function noteOn(imported: readonly string[]): string {
  return (
    `viv: the files of templates that were made of container images are not in the backup: ${firstOf(imported)}; ` +
    "after a restore on another host import them again"
  );
}

const firstOf = (names: readonly string[]) =>
  `${names.slice(0, 5).join(", ")}${names.length > 5 ? ` and ${names.length - 5} more` : ""}`;

/** A folder for links to the objects of a directory, on its file system. */
async function keptBeside(dataDir: string, of: string) {
  return Object.assign(await makeStaging(await parentOfKept(dataDir, of), "-objects"), { of });
}

/** Ids of all that a backup can have besides rows and keys. */
type Contents = Pick<BackupManifest, "snapshots" | "volumes" | "artifacts" | "archives">;

const namesIn = ({ snapshots, volumes, artifacts, archives }: Head): Contents => ({
  snapshots,
  volumes,
  artifacts: artifacts.map(ownerOf),
  archives: archives.map(ownerOf),
});

interface Writing {
  context: Context;
  layout: Layout;
  /** Where the parts are collected. */
  dir: string;
  /** Where objects are. */
  objects: string | undefined;
  signal: AbortSignal;
}

async function write(
  { context: { config, terminal }, layout, dir, objects, signal }: Writing,
  file: string,
  facts: { head: Head; savedState: boolean; present: Contents; missing: string[] },
): Promise<BackupManifest> {
  const { head, savedState, present, missing } = facts;
  const { snapshots, volumes, artifacts, archives } = present;
  await copyKeys(layout.controlDir, path.join(dir, KEYS_DIR));
  if (foreignKek(config, layout) === undefined) {
    const name = path.basename(config.childEnv.VIV_KEK_FILE || "kek");
    const removed = await addEarlierKeks(
      path.join(dir, KEYS_DIR, name),
      path.join(dir, EARLIER_KEYS_DIR, name),
    );
    if (removed.length > 0)
      terminal.note(
        `viv: the backup has keys that were removed from ${name} meanwhile, as its rows may need them: ${removed.join(", ")}`,
      );
  }
  const members = await membersOf(layout, { dir, objects }, present);
  terminal.note(
    `viv: computing the sums of ${snapshots.length} saved states, ${volumes.length} volumes, ${artifacts.length} artifacts and the rest`,
  );
  const manifest = newManifest({
    made_at: new Date().toISOString(),
    made_by: (await readBuild()).version,
    schema: head.schema,
    node_id: config.childEnv.VIV_NODE_ID || "nod_local",
    saved_state: savedState,
    snapshots,
    volumes,
    artifacts,
    archives,
    missing,
    files: await sumsOf(members),
  });
  await writeFile(path.join(dir, MANIFEST_FILE), `${JSON.stringify(manifest, null, 2)}\n`);
  signal.throwIfAborted();
  terminal.note(`viv: writing ${file}`);
  // The manifest comes first, so that a restore reads it without unpacking the rest.
  await pack(file, [{ dir, names: [MANIFEST_FILE] }, ...members], {
    signal,
    verify: (names) => verifyAgain(members, names, manifest),
  });
  return manifest;
}

/** Refuses to replace an archive by one without what it has and rows still refer to. */
async function checkReplaced(
  file: string,
  { wanted, present }: { wanted: Contents; present: Contents },
): Promise<void> {
  if (!existsSync(file)) return;
  // Any other file is replaced, as --force says.
  const before = await readFirst(file, MANIFEST_FILE)
    .then((text) => JSON.parse(text) as Partial<BackupManifest>)
    .catch(() => undefined);
  if (!Array.isArray(before?.snapshots)) return;
  const idsIn = (contents: Partial<Contents>) =>
    [contents.snapshots, contents.volumes, contents.artifacts, contents.archives].flatMap((ids) => ids ?? []);
  const [inRows, there] = [new Set(idsIn(wanted)), new Set(idsIn(present))];
  const lost = idsIn(before).filter((id) => inRows.has(id) && !there.has(id));
  if (lost.length === 0) return;
  throw new CliError(`${file} has what the new backup would lack: ${firstOf(lost)}`, {
    hint: "It was not replaced. Give --saved-state if it was left out, and leave nothing else out; or write to another name, and keep this file: it may be the last one with them.",
  });
}

/** Kept files get and lose names while the service makes and deletes others; their content never changes. */
async function verifyAgain(
  members: readonly Members[],
  changed: string[],
  { files }: BackupManifest,
): Promise<void> {
  const found = members.map(async ({ dir, names }) => {
    const isOf = (file: string) => names.some((name) => file === name || file.startsWith(`${name}/`));
    return await sumsBelow(dir, changed.filter(isOf));
  });
  const expected = Object.fromEntries(Object.entries(files).filter(([name]) => changed.includes(name)));
  const wrong = differences(expected, Object.assign({}, ...(await Promise.all(found))));
  if (wrong.length === 0) return;
  throw new CliError(`files changed while they were saved: ${wrong.slice(0, 5).join(", ")}`, {
    hint: "Nothing was written. Try again.",
  });
}

/** The directory belongs to control's user, which could have put links there. */
async function copyKeys(controlDir: string, target: string): Promise<void> {
  await mkdir(target, { mode: 0o700 });
  const entries = await readdir(controlDir, { withFileTypes: true });
  // Rows that were saved before an update are not keys: the backup has rows of its own.
  const isKey = (name: string) => !name.endsWith(".tmp") && !SAVED_ROWS.test(name);
  const names = entries.filter((one) => one.isFile() && isKey(one.name)).map(({ name }) => name);
  if (!names.includes("pepper")) throw noKeys(controlDir);
  for (const name of names) {
    const { bytes } = await readUnprivilegedBytes(path.join(controlDir, name));
    await writeFile(path.join(target, name), bytes, { mode: 0o600 });
  }
}

function noKeys(controlDir: string): CliError {
  return new CliError(`${controlDir} has no keys`, {
    hint: "Give the data directory of a service that was started at least once: --data-dir DIR.",
  });
}

async function membersOf(
  layout: Layout,
  { dir, objects }: Pick<Writing, "dir" | "objects">,
  { snapshots, volumes }: Contents,
): Promise<Members[]> {
  const own = [ROWS_FILE, KEYS_DIR];
  if (snapshots.length > 0) own.push(STATES_DIR);
  if (volumes.length > 0) own.push(VOLUMES_DIR);
  const dirs = snapshots.map((id) => path.join(dir, STATES_DIR, id));
  const builds = (await buildsOf(dirs))
    .map((name) => path.join(QEMU_DIR, name))
    .filter((name) => existsSync(path.join(layout.dataDir, name)));
  const hasObjects = objects !== undefined && existsSync(path.join(objects, OBJECTS_DIR));
  return [
    { dir, names: own },
    ...(hasObjects ? [{ dir: objects, names: [OBJECTS_DIR] }] : []),
    ...(builds.length > 0 ? [{ dir: layout.dataDir, names: builds }] : []),
  ];
}

async function sumsOf(members: readonly Members[]): Promise<BackupManifest["files"]> {
  const sums = await Promise.all(members.map(({ dir, names }) => sumsBelow(dir, names)));
  return Object.assign({}, ...sums) as BackupManifest["files"];
}

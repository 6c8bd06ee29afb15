/**
 * Makes a backup: rows, keys and, if asked, saved state, as of one instant, while the service runs. The saved states
 * that the rows of that instant refer to are kept by further names while the rows are read, and copied from these.
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
import { dumpWithStates } from "./dump-with-states.ts";
import {
  type BackupManifest,
  differences,
  KEYS_DIR,
  MANIFEST_FILE,
  newManifest,
  QEMU_DIR,
  ROWS_FILE,
  STATES_DIR,
} from "./manifest.ts";
import type { Head } from "./rows.ts";
import { buildsOf } from "./saved-state.ts";
import { withAddress, withPool } from "./source.ts";
import { makeStaging } from "./staging.ts";
import { sumsBelow } from "./sums.ts";

interface BackupOptions {
  savedState: boolean;
  signal: AbortSignal;
}

export async function backUp(
  context: Context,
  file: string,
  { savedState, signal }: BackupOptions,
): Promise<BackupManifest> {
  const { config, terminal } = context;
  const layout = layoutOf(config.dataDir, config.imagesDir);
  if (!existsSync(layout.controlDir)) throw noKeys(layout.controlDir);
  await requireNoUnfinishedRestore(layout);
  const place = await databasePlace(config);
  return await withPool({ layout, terminal, isNeeded: savedState }, async ({ pool, isHeld }) => {
    const staging = await makeStaging(pool ?? layout.dataDir);
    try {
      const { head, missing } = await withAddress({ layout, place, isHeld }, (url) =>
        dumpWithStates(url, { dir: staging.dir, pool: pool ?? layout.dataDir, savedState }),
      );
      signal.throwIfAborted();
      terminal.note(`viv: the database's rows are saved (schema ${head.schema})`);
      const snapshots = savedState ? head.snapshots.filter((id) => !missing.includes(id)) : [];
      await checkReplaced(file, { wanted: head.snapshots, present: snapshots });
      const facts = { head, savedState, snapshots, missing };
      return await write({ context, layout, dir: staging.dir, signal }, file, facts);
    } finally {
      await staging.remove();
    }
  });
}

interface Writing {
  context: Context;
  layout: Layout;
  /** Where the parts are collected. */
  dir: string;
  signal: AbortSignal;
}

async function write(
  { context: { config, terminal }, layout, dir, signal }: Writing,
  file: string,
  facts: { head: Head; savedState: boolean; snapshots: string[]; missing: string[] },
): Promise<BackupManifest> {
  const { head, savedState, snapshots, missing } = facts;
  await copyKeys(layout.controlDir, path.join(dir, KEYS_DIR));
  const members = await membersOf(layout, dir, snapshots);
  terminal.note(`viv: computing the sums of ${snapshots.length} saved states and the rest`);
  const manifest = newManifest({
    made_at: new Date().toISOString(),
    made_by: (await readBuild()).version,
    schema: head.schema,
    node_id: config.childEnv.VIV_NODE_ID || "nod_local",
    saved_state: savedState,
    snapshots,
    missing,
    files: await sumsOf(members),
  });
  await writeFile(path.join(dir, MANIFEST_FILE), `${JSON.stringify(manifest, null, 2)}\n`);
  signal.throwIfAborted();
  terminal.note(`viv: writing ${file}`);
  // The manifest comes first, so that a restore reads it without unpacking the rest.
  await pack(file, [{ dir, names: [MANIFEST_FILE] }, ...members], {
    signal,
    verify: (names) => verifyAgain(dir, names, manifest),
  });
  return manifest;
}

/** Refuses to replace an archive by one without saved states that it has, and that rows still refer to. */
async function checkReplaced(
  file: string,
  { wanted, present }: { wanted: readonly string[]; present: readonly string[] },
): Promise<void> {
  if (!existsSync(file)) return;
  // Any other file is replaced, as --force says.
  const before = await readFirst(file, MANIFEST_FILE)
    .then((text) => JSON.parse(text) as Partial<BackupManifest>)
    .catch(() => undefined);
  if (!Array.isArray(before?.snapshots)) return;
  const lost = before.snapshots.filter((id) => wanted.includes(id) && !present.includes(id));
  if (lost.length === 0) return;
  const named = `${lost.slice(0, 5).join(", ")}${lost.length > 5 ? ` and ${lost.length - 5} more` : ""}`;
  throw new CliError(`${file} has saved states that the new backup would lack: ${named}`, {
    hint: "It was not replaced. Give --saved-state if it was left out; else write to another name, and keep this file: it may be the last one with them.",
  });
}

/** Files of saved states get and lose names while the service makes and deletes others; their content never changes. */
async function verifyAgain(dir: string, names: string[], { files }: BackupManifest): Promise<void> {
  const expected = Object.fromEntries(Object.entries(files).filter(([name]) => names.includes(name)));
  const wrong = differences(expected, await sumsBelow(dir, names));
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

async function membersOf(layout: Layout, staging: string, snapshots: string[]): Promise<Members[]> {
  const own = { dir: staging, names: [ROWS_FILE, KEYS_DIR, ...(snapshots.length > 0 ? [STATES_DIR] : [])] };
  const dirs = snapshots.map((id) => path.join(staging, STATES_DIR, id));
  const builds = (await buildsOf(dirs))
    .map((name) => path.join(QEMU_DIR, name))
    .filter((name) => existsSync(path.join(layout.dataDir, name)));
  return builds.length === 0 ? [own] : [own, { dir: layout.dataDir, names: builds }];
}

async function sumsOf(members: readonly Members[]): Promise<BackupManifest["files"]> {
  const sums = await Promise.all(members.map(({ dir, names }) => sumsBelow(dir, names)));
  return Object.assign({}, ...sums) as BackupManifest["files"];
}

/**
 * Removes old versions of official templates, so that set-up does not add a base disk with each update. Machines and
 * snapshots have their own links to a version's files and do not need its folder; the folder serves creates that name
 * the version. Kept are the versions that a machine or a saved state of this pool comes from, and the newest few.
 */
import { readlink, rename, rm, stat } from "node:fs/promises";
import path from "node:path";
import { foldersIn } from "./folder.ts";

/** Number of newest versions that are kept, including the current one. */
const KEPT_VERSIONS = 3;
const POINTERS = ["current", "next"];
const BASE_DISK = "root.ext4";
/** Prefix of the name of a version that is being removed, which hides it from listings of versions. */
const REMOVED = ".removed-";

/** Returns the removed versions as `<template>@<version>`. */
export async function pruneVersions(imagesDir: string): Promise<string[]> {
  const templates = path.join(imagesDir, "templates");
  const removed: string[] = [];
  for (const template of await foldersIn(templates)) {
    const dir = path.join(templates, template);
    for (const version of await dispensable(dir)) {
      await remove(dir, version);
      removed.push(`${template}@${version}`);
    }
    for (const name of await foldersIn(dir))
      if (name.startsWith(REMOVED)) await rm(path.join(dir, name), { recursive: true, force: true });
  }
  return removed;
}

async function dispensable(template: string): Promise<string[]> {
  const pointed = new Set(await Promise.all(POINTERS.map((name) => targetOf(path.join(template, name)))));
  // Without a current version set-up never finished here, so no version is known to be old.
  if (!(await targetOf(path.join(template, "current")))) return [];
  const versions = (await foldersIn(template)).filter((name) => !name.startsWith("."));
  const aged = await Promise.all(versions.map(async (name) => ({ name, ...(await lookAt(template, name)) })));
  const newestFirst = aged.toSorted((a, b) => b.madeAtMs - a.madeAtMs);
  return newestFirst
    .slice(KEPT_VERSIONS)
    .filter(({ name, isUsed }) => !isUsed && !pointed.has(name))
    .map(({ name }) => name);
}

/** Age and use of a version. A machine or saved state is one more link to the base disk, besides the baselines' links. */
async function lookAt(template: string, version: string): Promise<{ madeAtMs: number; isUsed: boolean }> {
  const dir = path.join(template, version);
  const disk = await stat(path.join(dir, BASE_DISK)).catch(() => undefined);
  const made = disk ?? (await stat(dir));
  const sizes = await foldersIn(dir);
  const own = await Promise.all(
    sizes.map((size) => stat(path.join(dir, size, "base.raw")).catch(() => undefined)),
  );
  const ownLinks = 1 + own.filter((link) => link?.ino === disk?.ino).length;
  return { madeAtMs: made.mtimeMs, isUsed: disk !== undefined && disk.nlink > ownLinks };
}

/** Renames a version for its removal, so that a half removed one does not count as a version. */
async function remove(template: string, version: string): Promise<void> {
  const going = path.join(template, `${REMOVED}${version}`);
  await rm(going, { recursive: true, force: true });
  await rename(path.join(template, version), going);
}

const targetOf = async (link: string) => path.basename(await readlink(link).catch(() => ""));

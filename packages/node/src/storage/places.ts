/** Lists snapshots, machines and volumes of the pool and baselines of the images, and measures the space that each takes. */
import { existsSync } from "node:fs";
import { readdir, stat } from "node:fs/promises";
import path from "node:path";
import { extentsOf } from "@vivarium/kit/extents";
import { isHalfRemoved } from "../disks/remove-folder.ts";
import { machinesDir } from "../machines/journal.ts";
import { buildsDir } from "../snapshots/built-baselines.ts";
import { foldersIn, lookOf } from "../snapshots/folder.ts";
import { manifestPath } from "../snapshots/manifest.ts";
import { imagePath, volumesDir } from "../volumes/images.ts";

const BLOCK_BYTES = 512;

export interface Place {
  kind: "snapshot" | "machine" | "volume" | "baseline";
  /** A baseline has `<template>@<version>/<size>`, that of a build `<build id>/<size>`. */
  id: string;
  dir: string;
}

export async function placesOf(dataDir: string, imagesDir: string): Promise<Place[]> {
  const isVolume = async (id: string) => existsSync(imagePath(dataDir, id));
  return [
    ...(await placesIn("snapshot", path.join(dataDir, "pool/s"), isPublished)),
    ...(await placesIn("volume", volumesDir(dataDir), isVolume)),
    ...(await baselinesIn(path.join(imagesDir, "templates"))),
    ...(await builtIn(buildsDir(dataDir))),
    ...(await placesIn("machine", machinesDir(dataDir), async () => true)),
  ];
}

const isPublished = async (_id: string, dir: string) => (await lookOf(dir)) === "published";

async function placesIn(
  kind: Place["kind"],
  parent: string,
  isOne: (id: string, dir: string) => Promise<boolean>,
): Promise<Place[]> {
  const places: Place[] = [];
  for (const id of await foldersIn(parent)) {
    const dir = path.join(parent, id);
    if (!isHalfRemoved(id) && (await isOne(id, dir))) places.push({ kind, id, dir });
  }
  return places;
}

async function baselinesIn(templates: string): Promise<Place[]> {
  const places: Place[] = [];
  for (const template of await foldersIn(templates))
    for (const version of await foldersIn(path.join(templates, template)))
      for (const size of await foldersIn(path.join(templates, template, version))) {
        const dir = path.join(templates, template, version, size);
        if (existsSync(manifestPath(dir)))
          places.push({ kind: "baseline", id: `${template}@${version}/${size}`, dir });
      }
  return places;
}

/** Baselines of builds, which are ready or may become so. */
async function builtIn(builds: string): Promise<Place[]> {
  const places: Place[] = [];
  for (const id of (await foldersIn(builds)).filter((name) => !isHalfRemoved(name)))
    for (const size of await foldersIn(path.join(builds, id))) {
      const dir = path.join(builds, id, size);
      if (existsSync(manifestPath(dir))) places.push({ kind: "baseline", id: `${id}/${size}`, dir });
    }
  return places;
}

/**
 * Bytes on disk of the files of a place, and how many of them are also other files': by shared blocks, or as a further
 * name of the same file. What is removed frees only the rest. `volumes`: the images of volumes, of which a machine has a
 * further name while one is attached. They are the volume's alone.
 */
export async function spaceOf(
  { dir, kind }: Pick<Place, "dir" | "kind">,
  { withShared = true, volumes = new Set<bigint>() } = {},
): Promise<{ bytes: number; sharedBytes: number }> {
  const space = { bytes: 0, sharedBytes: 0 };
  const seen = new Set<bigint>();
  const entries = await readdir(dir, { recursive: true, withFileTypes: true }).catch(() => []);
  for (const entry of entries.filter((one) => one.isFile())) {
    const file = path.join(entry.parentPath, entry.name);
    // It may be removed meanwhile.
    const found = await stat(file, { bigint: true }).catch(() => undefined);
    if (!found || seen.has(found.ino) || (kind === "machine" && volumes.has(found.ino))) continue;
    seen.add(found.ino);
    const bytes = Number(found.blocks) * BLOCK_BYTES;
    space.bytes += bytes;
    if (!withShared || bytes === 0) continue;
    if (found.nlink > 1n && kind !== "volume") space.sharedBytes += bytes;
    else space.sharedBytes += Math.min(bytes, await sharedIn(file));
  }
  return space;
}

/** The inodes of the images of volumes. */
export async function volumeInodes(places: readonly Place[]): Promise<Set<bigint>> {
  const images = places.filter(({ kind }) => kind === "volume").map(({ dir }) => path.join(dir, "image"));
  const found = await Promise.all(
    images.map((image) => stat(image, { bigint: true }).catch(() => undefined)),
  );
  return new Set(found.flatMap((image) => (image ? [image.ino] : [])));
}

async function sharedIn(file: string): Promise<number> {
  const extents = (await extentsOf(file)) ?? [];
  return extents.reduce((sum, { bytes, isShared }) => sum + (isShared ? bytes : 0), 0);
}

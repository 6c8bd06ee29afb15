/**
 * Images of volumes: one sparse file with an ext4 file system each. The host makes the file system of an empty volume, and
 * never reads one afterwards: guests write into them what they like. Growing is up to the guest, too.
 */
import { mkdir, open, readdir, rename, rm, stat, truncate } from "node:fs/promises";
import path from "node:path";
import { crashPoint } from "@vivarium/kit/crash-point";
import { syncPath } from "@vivarium/kit/durable-file";
import { GIB } from "@vivarium/kit/sizes";
import { isHalfRemoved, removeHalfRemoved, removeInSteps } from "../disks/remove-folder.ts";
import { run } from "../host/run.ts";
import { NodeError } from "../node-error.ts";

/** The guest's user `sandbox` (`guest/agent/src/users.rs`), who owns the root of a new volume. */
const OWNER = "999:999";
const IMAGE = "image";

export const volumesDir = (dataDir: string) => path.join(dataDir, "pool/v");
export const volumeDir = (dataDir: string, id: string) => path.join(volumesDir(dataDir), id);
export const imagePath = (dataDir: string, id: string) => path.join(volumeDir(dataDir, id), IMAGE);

/** Makes the volume, unless it exists. It is whole once it has its name. */
export async function makeImage(dataDir: string, id: string, sizeGb: number): Promise<void> {
  if (await sizeOf(dataDir, id)) return;
  const image = imagePath(dataDir, id);
  const partial = `${image}.part`;
  await mkdir(path.dirname(image), { recursive: true, mode: 0o711 });
  await rm(partial, { force: true });
  const file = await open(partial, "wx", 0o600);
  try {
    await file.truncate(sizeGb * GIB);
  } finally {
    await file.close();
  }
  // Nothing is written that a hole says as well, so that an empty volume takes a megabyte.
  const how = `root_owner=${OWNER},lazy_itable_init=1,lazy_journal_init=1,nodiscard`;
  await run("mkfs.ext4", ["-q", "-F", "-b", "4096", "-m", "0", "-E", how, partial]);
  await syncPath(partial);
  crashPoint("volume.made");
  await rename(partial, image);
  await syncPath(path.dirname(image));
  await syncPath(volumesDir(dataDir));
}

/** Makes the image larger, never smaller. What is new is a hole. */
export async function growImage(dataDir: string, id: string, sizeGb: number): Promise<void> {
  const bytes = await sizeOf(dataDir, id);
  if (bytes === undefined) throw new NodeError("volume_not_found", `no volume ${id} on this node`);
  if (bytes >= sizeGb * GIB) return;
  await truncate(imagePath(dataDir, id), sizeGb * GIB);
  await syncPath(imagePath(dataDir, id));
  crashPoint("volume.grown");
}

export async function removeImage(dataDir: string, id: string): Promise<void> {
  await removeInSteps(volumeDir(dataDir, id), () => crashPoint("volume.removed"));
}

/** Makes the folder of all volumes, and removes what a crash left of removed ones. */
export async function prepareVolumes(dataDir: string): Promise<void> {
  await mkdir(volumesDir(dataDir), { recursive: true, mode: 0o711 });
  await removeHalfRemoved(volumesDir(dataDir));
}

/** Ids of all volumes, also of those that are not whole. */
export async function volumeIds(dataDir: string): Promise<string[]> {
  return (await readdir(volumesDir(dataDir))).filter((name) => !isHalfRemoved(name));
}

/** Size in bytes; undefined without a whole image. */
async function sizeOf(dataDir: string, id: string): Promise<number | undefined> {
  return (await lookAt(dataDir, id))?.size;
}

/** Size and the bytes that the image takes. */
export async function lookAt(
  dataDir: string,
  id: string,
): Promise<{ size: number; bytes: number } | undefined> {
  try {
    const { size, blocks } = await stat(imagePath(dataDir, id));
    return { size, bytes: blocks * 512 };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

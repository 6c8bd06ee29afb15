/** Keeps the images of volumes for a backup, as of one instant each, and places those of one. */
import { existsSync } from "node:fs";
import { chmod, chown, constants, copyFile, mkdir, rename, rm } from "node:fs/promises";
import path from "node:path";
import { syncPath } from "@vivarium/kit/durable-file";
import { hasCode } from "@vivarium/kit/unknown-error";
import { CliError } from "../cli-error.ts";

/** The file of a volume, in its folder in the pool (packages/node volumes/images.ts). */
export const IMAGE_FILE = "image";
const NOT_CLONED = ["ENOTSUP", "EOPNOTSUPP", "ENOSYS", "EXDEV", "EINVAL", "ENOTTY"];

/**
 * Copies a volume with shared blocks. The kernel lets no write pass meanwhile, so a volume that a machine writes to is
 * copied as a power cut would have left it. Returns whether the volume was there.
 */
export async function keepVolume(source: string, target: string): Promise<boolean> {
  await rm(target, { recursive: true, force: true });
  await mkdir(target, { recursive: true, mode: 0o711 });
  try {
    const [image, kept] = [source, target].map((dir) => path.join(dir, IMAGE_FILE)) as [string, string];
    await copyFile(image, kept, constants.COPYFILE_FICLONE_FORCE);
    return true;
  } catch (error) {
    await rm(target, { recursive: true, force: true });
    if (hasCode(error, "ENOENT", "ENOTDIR")) return false;
    if (!hasCode(error, ...NOT_CLONED)) throw error;
    throw new CliError(`${source} cannot be copied as of one instant: its file system shares no blocks`, {
      hint: "viv doctor says what the pool lacks. --no-volumes leaves volumes out.",
      cause: error,
    });
  }
}

/** Moves a volume of a backup into the pool. One that is there stays as it is, as it may be newer: then false. */
export async function placeVolume(source: string, target: string): Promise<boolean> {
  if (existsSync(path.join(target, IMAGE_FILE))) return false;
  const image = path.join(source, IMAGE_FILE);
  await chown(image, 0, 0);
  await chmod(image, 0o600);
  await syncPath(image);
  await syncPath(source);
  await rm(target, { recursive: true, force: true });
  await mkdir(path.dirname(target), { recursive: true, mode: 0o711 });
  await rename(source, target);
  await syncPath(path.dirname(target));
  return true;
}

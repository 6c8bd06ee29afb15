/** Clones and links files, and finds out whether the file system can share blocks. */
import { constants, copyFile, link, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { run } from "../host/run.ts";

/** Copies a file: with shared blocks if the file system can, else block by block, with its holes. */
export async function cloneFile(source: string, target: string): Promise<void> {
  try {
    await copyFile(source, target, constants.COPYFILE_FICLONE_FORCE | constants.COPYFILE_EXCL);
  } catch (error) {
    if (!NOT_CLONED.has((error as NodeJS.ErrnoException).code ?? "")) throw error;
    await run("cp", ["--reflink=auto", "--sparse=always", source, target]);
  }
}

/**
 * Gives a file a second name, so that it lives as long as either. Across file systems it is copied with its times,
 * because the times show that a file was not written.
 */
export async function shareFile(source: string, target: string): Promise<void> {
  try {
    await link(source, target);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EXDEV") throw error;
    await run("cp", ["--sparse=always", "--preserve=timestamps", source, target]);
  }
}

/** Errors of a file system that cannot clone. */
const NOT_CLONED = new Set(["ENOTSUP", "EOPNOTSUPP", "ENOSYS", "EXDEV", "EINVAL", "ENOTTY"]);

/** Whether files in this directory can be cloned without copying their blocks. */
export async function hasReflink(dir: string): Promise<boolean> {
  const source = path.join(dir, `.reflink-probe-${process.pid}`);
  const clone = `${source}-clone`;
  try {
    await writeFile(source, Buffer.alloc(4096, 1));
    await copyFile(source, clone, constants.COPYFILE_FICLONE_FORCE);
    return true;
  } catch {
    return false;
  } finally {
    await rm(source, { force: true });
    await rm(clone, { force: true });
  }
}

import { constants, copyFile, link } from "node:fs/promises";
import { run } from "../host/run.ts";

/** A file of its own with the same content: shared blocks where the file system can, else a copy that keeps holes. */
export async function cloneFile(source: string, target: string): Promise<void> {
  try {
    await copyFile(source, target, constants.COPYFILE_FICLONE_FORCE | constants.COPYFILE_EXCL);
  } catch (error) {
    if (!NOT_CLONED.has((error as NodeJS.ErrnoException).code ?? "")) throw error;
    await run("cp", ["--reflink=auto", "--sparse=always", source, target]);
  }
}

/**
 * The same file under another name, so that it lives as long as either; across file systems a copy of the same age,
 * because a file that nobody wrote is known by its age.
 */
export async function shareFile(source: string, target: string): Promise<void> {
  try {
    await link(source, target);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EXDEV") throw error;
    await run("cp", ["--sparse=always", "--preserve=timestamps", source, target]);
  }
}

const NOT_CLONED = new Set(["ENOTSUP", "EOPNOTSUPP", "ENOSYS", "EXDEV", "EINVAL", "ENOTTY"]);

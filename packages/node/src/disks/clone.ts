/** Clones and links files, and finds out whether the file system can share blocks. */
import { createReadStream, createWriteStream } from "node:fs";
import { constants, copyFile, link, rm, stat, writeFile } from "node:fs/promises";
import path from "node:path";
import { pipeline } from "node:stream/promises";
import { runHostCommand } from "@vivarium/kit/host-command";
import { MIB } from "@vivarium/kit/sizes";
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

/**
 * Puts a file's content into another file at an offset, which is a multiple of 4 KiB: with shared blocks if the file system
 * can, else copied.
 */
export async function cloneInto(source: string, target: string, offset: number): Promise<void> {
  const { size } = await stat(source);
  if (await shareRange(source, target, { offset, size })) return;
  const into = createWriteStream(target, { flags: "r+", start: offset });
  await pipeline(createReadStream(source, { highWaterMark: MIB }), into);
}

/** FICLONERANGE, which Node does not have. The tool does not always report a failure by its exit code, the size does. */
async function shareRange(
  source: string,
  target: string,
  { offset, size }: { offset: number; size: number },
): Promise<boolean> {
  // The paths are not part of the tool's command, which would take them apart at spaces.
  const script = 'exec 9<"$1" && exec xfs_io -c "reflink /dev/fd/9 0 $3 $4" "$2"';
  const args = ["-c", script, "sh", source, target, String(offset), String(size)];
  const { code } = await runHostCommand("sh", args);
  return code === 0 && (await stat(target)).size === offset + size;
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

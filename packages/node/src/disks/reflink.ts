import { constants, copyFile, rm, writeFile } from "node:fs/promises";
import path from "node:path";

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

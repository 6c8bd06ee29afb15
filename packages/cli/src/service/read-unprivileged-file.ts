import { constants } from "node:fs";
import { open } from "node:fs/promises";

/**
 * Reads a file in a directory of an unprivileged user, with the rights of this process. Hazard: that user could have
 * put a link there, to get the contents of a file that only this process may read. Throws if the file is missing, is a
 * link or has other names.
 */
export async function readUnprivilegedFile(file: string): Promise<{ text: string; changedAtMs: number }> {
  await using handle = await open(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  const stat = await handle.stat();
  if (!stat.isFile() || stat.nlink !== 1) throw new Error(`${file} is no plain file, or has other names`);
  return { text: await handle.readFile("utf8"), changedAtMs: stat.mtimeMs };
}

import { constants } from "node:fs";
import { open } from "node:fs/promises";

/**
 * Reads a file in the folder of an unprivileged process, with more rights than that process has. Hazard: the process
 * could have put a link there, to get the contents of a file that it must not read. Throws if the file is missing, or
 * is not a plain file of that folder.
 */
export async function readOwnFile(file: string): Promise<{ text: string; changedAtMs: number }> {
  await using handle = await open(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  const stat = await handle.stat();
  if (!stat.isFile() || stat.nlink !== 1) throw new Error(`${file} is no plain file, or has other names`);
  return { text: await handle.readFile("utf8"), changedAtMs: stat.mtimeMs };
}

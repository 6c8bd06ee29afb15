import { constants } from "node:fs";
import { open } from "node:fs/promises";

interface OwnFile {
  text: string;
  changedAtMs: number;
}

/**
 * A file in the folder of an unprivileged process, read with more rights than that has: it could have put a link there, to
 * learn of us what it must not read itself. Throws where the file is missing or is no plain file of that folder.
 */
export async function readOwnFile(file: string): Promise<OwnFile> {
  const handle = await open(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    const stat = await handle.stat();
    if (!stat.isFile() || stat.nlink !== 1) throw new Error(`${file} is no plain file, or has other names`);
    return { text: await handle.readFile("utf8"), changedAtMs: stat.mtimeMs };
  } finally {
    await handle.close();
  }
}

import { constants } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";

/**
 * Opens a file in a directory of an unprivileged user, to be read with the rights of this process. Hazard: that user could
 * have put a link there, to get the contents of a file that only this process may read, or a pipe, on which this process
 * would wait for ever. Throws if the file is missing, is no plain file or has other names.
 */
export async function openUnprivileged(file: string): Promise<FileHandle> {
  const handle = await open(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  const stat = await handle.stat();
  if (stat.isFile() && stat.nlink === 1) return handle;
  await handle.close();
  throw new Error(`${file} is no plain file, or has other names`);
}

/** Reads a file as `openUnprivileged` opens it. */
export async function readUnprivilegedBytes(file: string): Promise<{ bytes: Buffer; changedAtMs: number }> {
  await using handle = await openUnprivileged(file);
  const { mtimeMs } = await handle.stat();
  return { bytes: await handle.readFile(), changedAtMs: mtimeMs };
}

/** As `readUnprivilegedBytes`, of a text. */
export async function readUnprivilegedFile(file: string): Promise<{ text: string; changedAtMs: number }> {
  const { bytes, changedAtMs } = await readUnprivilegedBytes(file);
  return { text: bytes.toString("utf8"), changedAtMs };
}

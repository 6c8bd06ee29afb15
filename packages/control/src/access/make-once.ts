/** Makes a file that several processes may want to make at once: the first one makes it for all. */
import { link, readdir, readFile, rm } from "node:fs/promises";
import path from "node:path";
import { syncPath, writeDurably } from "@vivarium/kit/durable-file";
import { randomId } from "@vivarium/kit/id";
import { hasCode } from "@vivarium/kit/unknown-error";

/** The end of a copy's name, behind that of the file. */
const COPY = /^\.[a-z0-9]{21}(\.tmp)?$/;

/** The content of the file, which is made if it is not there. */
export async function readOrMake(file: string, make: () => Buffer | string): Promise<Buffer> {
  const content = await readIfThere(file);
  if (content === null) return await makeOnce(file, make());
  await removeCopies(file);
  return content;
}

/** Makes the file with these bytes, for its owner alone, unless it is there. Returns what it contains. */
export async function makeOnce(file: string, bytes: Buffer | string): Promise<Buffer> {
  const own = `${file}.${randomId()}`;
  try {
    await writeDurably(own, bytes, 0o600);
    await link(own, file);
    await syncPath(path.dirname(file));
  } catch (error) {
    // Another process has made it, and may have removed this one's copy as one that was left.
    if (!hasCode(error, "EEXIST", "ENOENT")) throw error;
  }
  await removeCopies(file);
  return await readFile(file);
}

/**
 * Removes the copies of a file that is there, also those of processes that died while they made it: each has a key. One
 * that is making it right now reads the file instead.
 */
export async function removeCopies(file: string): Promise<void> {
  const [dir, name] = [path.dirname(file), path.basename(file)];
  const isCopy = (other: string) => other.startsWith(name) && COPY.test(other.slice(name.length));
  for (const copy of (await readdir(dir)).filter(isCopy)) await rm(path.join(dir, copy), { force: true });
}

/** The content of a file; null if it is not there. */
async function readIfThere(file: string): Promise<Buffer | null> {
  return await readFile(file).catch((error: unknown) => {
    if (hasCode(error, "ENOENT")) return null;
    throw error;
  });
}

/** Makes a file that several processes may want to make at once: the first one makes it for all. */
import { link, readFile, rm } from "node:fs/promises";
import { writeDurably } from "@vivarium/kit/durable-file";
import { randomId } from "@vivarium/kit/id";
import { hasCode } from "@vivarium/kit/unknown-error";

/** Makes the file with these bytes, for its owner alone, unless it is there. Returns what it contains. */
export async function makeOnce(file: string, bytes: Buffer | string): Promise<Buffer> {
  const own = `${file}.${randomId()}`;
  await writeDurably(own, bytes, 0o600);
  await link(own, file).catch((error: unknown) => {
    if (!hasCode(error, "EEXIST")) throw error;
  });
  await rm(own);
  return await readFile(file);
}

/** The content of a file; null if it is not there. */
export async function readIfThere(file: string): Promise<Buffer | null> {
  return await readFile(file).catch((error: unknown) => {
    if (hasCode(error, "ENOENT")) return null;
    throw error;
  });
}
